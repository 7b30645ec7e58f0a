"""Stand-in for pinned host memory, which torch without an accelerator refuses.

SGLang's LoRA code asks for pinned tensors on every device. Python loads a sitecustomize in every process of a session;
this one waits for the import of torch, and then makes `pin_memory` mean ordinary memory where torch has no accelerator.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FACTORIES = ("arange", "empty", "empty_like", "full", "ones", "tensor", "zeros", "zeros_like")


def unpinned(factory: Callable[..., Any]) -> Callable[..., Any]:
    """`factory`, which takes `pin_memory` and leaves it out."""

    @functools.wraps(factory)
    def call(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        return factory(*args, **kwargs)

    call.kit_stand_in = True  # type: ignore[attr-defined]
    return call


def patch(torch: Any) -> None:
    """Make pinned memory ordinary memory in `torch`, once, and only where it has no accelerator.

    ``with torch.device(...)`` knows factories by identity, from a table that is filled at first use. It is filled here,
    with the functions that do the work in the end. Filled later it would hold the replacements, and the context would
    have no effect: transformers then loads models with garbage in their buffers, without an error.
    """
    if torch.accelerator.is_available() or hasattr(torch.empty, "kit_stand_in"):
        return
    importlib.import_module("torch.utils._device")._device_constructors()
    for name in FACTORIES:
        setattr(torch, name, unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *args, **kwargs: tensor


class AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as usual, and runs `patch` when it has been loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of torch with a loader that patches; None for any other module."""
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_patch(module: ModuleType) -> None:
            load(module)
            patch(module)

        spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


def run_hidden_sitecustomize() -> None:
    """Run the sitecustomize that this one hides, if there is one (Debian has one, virtual environments may)."""
    here = Path(__file__).resolve().parent
    rest = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if "torch" in sys.modules:
    patch(sys.modules["torch"])
else:
    sys.meta_path.insert(0, AfterTorch())
if __name__ == "sitecustomize":
    run_hidden_sitecustomize()
