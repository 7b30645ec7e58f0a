"""Faults of attention and LoRA kernels: the source of the real kernel is changed before it is loaded, or the arguments of its call."""

import importlib.util
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kit.attention_spec import AttentionSpec, Cached, GroupedDecode
from kit.errors import UsageFault
from kit.faults.kernel_sources import ATTENTION
from kit.faults.lora_sources import LORA
from kit.plan import InjectedFault

SOURCES: Final = ATTENTION | LORA


def _one_over_size(spec: AttentionSpec, arguments: dict[str, Any]) -> None:
    for name in ("sm_scale", "sm_scale_withk"):
        if name in arguments:
            arguments[name] = arguments[name] ** 2


def _window_one_short(spec: AttentionSpec, arguments: dict[str, Any]) -> None:
    if spec.window is None:
        return
    if not isinstance(spec, GroupedDecode):
        arguments["sliding_window_size"] = max(1, spec.window - 1)
        return
    starts = arguments["kv_indptr"].tolist()
    kept = [range(a + (b - a > spec.window), b) for a, b in pairwise(starts)]
    lengths = [0, *(len(part) for part in kept)]
    arguments["kv_indices"] = arguments["kv_indices"][[place for part in kept for place in part]]
    arguments["kv_indptr"] = arguments["kv_indptr"].new_tensor(lengths).cumsum(0).to(arguments["kv_indptr"].dtype)


def _pages_of_16_bits(spec: AttentionSpec, arguments: dict[str, Any]) -> None:
    if isinstance(spec, Cached):
        arguments["kv_indices"] = arguments["kv_indices"] & 0xFFFF


def _pages_contiguous(spec: AttentionSpec, arguments: dict[str, Any]) -> None:
    """As if the slots of a request followed its first one; none lies behind the last slot of all."""
    if not isinstance(spec, Cached):
        return
    slots = arguments["kv_indices"]
    for start, end in pairwise(arguments["kv_indptr"].tolist()):
        steps = slots.new_tensor(range(end - start))
        slots[start:end] = (slots[start : start + 1] + steps).clamp(max=int(slots.max()))


def _window_dropped(spec: AttentionSpec, arguments: dict[str, Any]) -> None:
    if "sliding_window_size" in arguments:
        arguments["sliding_window_size"] = -1


ARGUMENTS: Final[dict[str, Callable[[AttentionSpec, dict[str, Any]], None]]] = {
    "kernel-scale-one-over-size": _one_over_size,
    "kernel-window-one-short": _window_one_short,
    "kernel-pages-16-bits": _pages_of_16_bits,
    "kernel-pages-contiguous": _pages_contiguous,
    "kernel-window-dropped": _window_dropped,
}
"""By fault, a change of a call's arguments."""


def changed_module(name: str, faults: tuple[InjectedFault, ...], scratch: Path) -> ModuleType | None:
    """The kernel module `name` with the faults in its source, in place of the real one; None where no fault is about it.

    Raises:
        UsageFault: the installed source has no place for a fault.
    """
    short = name.rpartition(".")[2]
    changes = [(f, c) for f in faults for c in SOURCES.get(f.name, ()) if c.module == short]
    found = importlib.util.find_spec(name) if changes else None
    if found is None or found.origin is None:
        return None
    source = Path(found.origin).read_text()
    for fault, change in changes:
        if change.text not in source:
            raise UsageFault(f"the fault '{fault.name}' finds no place in {name}", "use SGLang 0.5.17 to 0.5.19")
        source = source.replace(change.text, change.instead.format(strength=fault.strength))
    path = scratch / "faults" / f"{short}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def changed_arguments(
    faults: tuple[InjectedFault, ...],
) -> tuple[Callable[[AttentionSpec, dict[str, Any]], None], ...]:
    """What the faults do to the arguments of every call."""
    return tuple(ARGUMENTS[fault.name] for fault in faults if fault.name in ARGUMENTS)


def changed_kernels() -> frozenset[str]:
    """Short names of the modules that faults change."""
    return frozenset(change.module for changes in SOURCES.values() for change in changes)
