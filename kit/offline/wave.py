"""SGLang's own Wave launchers, with Wave's compiler led to an architecture that this machine lacks.

SGLang asks ``wave_compile`` for a kernel and calls what it gets. In its place stands a compiler that emits the same kernel
for the architecture asked for, and gives back something else to call: nothing, or the execution of its MLIR.
"""

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.offline.code_object import Resources, amd_resources

MODULES = tuple(f"sglang.srt.layers.attention.wave_ops.{name}_attention" for name in ("decode", "extend", "prefill"))


@dataclass
class EmittedKernel:
    """One kernel that SGLang asked for.

    Attributes:
        name: of the function. mlir: the module that Wave emitted.
        resources: of the code object; None where none was asked for.
        failure: why no code object was made; None where one was, or none was asked for.
    """

    name: str
    mlir: str
    resources: Resources | None = None
    failure: str | None = None


@dataclass
class Emitted:
    """The kernels of one launch, in order."""

    kernels: list[EmittedKernel] = field(default_factory=list)


Call = Callable[[EmittedKernel, list[Any], list[int]], None]
"""Called with a kernel, its tensors (inputs, then outputs) and its integers, when SGLang launches it."""


def nothing(kernel: EmittedKernel, tensors: list[Any], scalars: list[int]) -> None:
    """A launch that does nothing, where only the code object is of interest."""


@contextmanager
def diverted(architecture: str, call: Call, binaries: Path | None = None) -> Iterator[Emitted]:
    """Within, Wave kernels of SGLang are emitted for `architecture`, and their launches reach `call`.

    Args:
        binaries: a folder for code objects, which are made only where one is given.
    """
    from wave_lang.kernel.wave import compile as wave_compiler

    os.environ["WAVE_CACHE_ON"] = "0"
    os.environ["WAVE_DEFAULT_ARCH"] = architecture
    emitted = Emitted()
    real = wave_compiler.wave_compile

    def emit(options: Any, kernel: Any, *rest: Any) -> Callable[..., None]:
        options.wave_runtime = False  # its runtime loads the code object onto a device
        options.compile_to_mlir = True
        made = real(options, kernel, *rest)
        usages = [str(b.kernel_buffer_type.usage.name) for b in options.kernel_sig.kernel_buffer_bindings]
        found = EmittedKernel(str(options.kernel_launch_info.func_name or kernel.__name__), made.asm)
        emitted.kernels.append(found)
        if binaries is not None:
            _compile(found, options, binaries / str(len(emitted.kernels)))
        return lambda *arguments: call(found, *_sorted(arguments, usages))

    modules = [importlib.import_module(name) for name in MODULES]
    kept = [module.wave_compile for module in modules]
    for module in modules:
        module.wave_compile = emit  # type: ignore[attr-defined]
    try:
        yield emitted
    finally:
        for module, before in zip(modules, kept, strict=True):
            module.wave_compile = before  # type: ignore[attr-defined]


def _compile(kernel: EmittedKernel, options: Any, folder: Path) -> None:
    """The code object of an emitted kernel, through the flags that Wave itself gives to IREE."""
    from wave_lang.kernel.wave.utils.compile_utils import compile_to_vmfb

    folder.mkdir(parents=True)
    options.dump_binaries = str(folder)
    try:
        compile_to_vmfb(kernel.mlir, options)
    except Exception as error:  # the compiler's own class differs between versions of IREE
        kernel.failure = f"{type(error).__name__}: {error}"
        return
    objects = sorted(folder.glob("*.hsaco"))
    if len(objects) != 1:
        kernel.failure = f"expected one code object, found {len(objects)}"
        return
    (kernel.resources,) = amd_resources(objects[0].read_bytes())


def _sorted(arguments: tuple[Any, ...], usages: list[str]) -> tuple[list[Any], list[int]]:
    """As ``WaveKernel.invoke`` does: tensors that are read, tensors that are written, then integers."""
    tensors = [item for item in arguments if hasattr(item, "shape")]
    scalars = [int(item) for item in arguments if not hasattr(item, "shape")]
    reads = [t for t, usage in zip(tensors, usages, strict=True) if usage == "INPUT"]
    writes = [t for t, usage in zip(tensors, usages, strict=True) if usage == "OUTPUT"]
    return [*reads, *writes], scalars
