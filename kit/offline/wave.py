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
        name: of the function. mlir: the module that Wave emitted. options: with which it was emitted.
        resources: of the code object; None where none was asked for, or none could be made.
        failure: why no code object could be made.
    """

    name: str
    mlir: str
    options: Any
    resources: Resources | None = None
    failure: str | None = None


Call = Callable[[EmittedKernel, list[Any], list[int]], None]
"""Called with a kernel, its tensors (inputs, then outputs) and its integers, when SGLang launches it."""


def _nothing(kernel: EmittedKernel, tensors: list[Any], scalars: list[int]) -> None:
    """A launch that does nothing."""


@dataclass
class Emitted:
    """The kernels that were asked for, and what a launch does.

    Attributes:
        kernels: by name and sizes, of one set of lengths: some kernels hold lengths that their sizes do not tell.
        launched: in order. call: what a launch does.
    """

    kernels: dict[tuple[str, frozenset[tuple[str, str]]], EmittedKernel] = field(default_factory=dict)
    launched: list[EmittedKernel] = field(default_factory=list)
    call: Call = _nothing

    def forget(self) -> None:
        """Emit anew what is asked for with other lengths; what SGLang itself keeps by its own rules stays."""
        self.kernels.clear()
        self.launched.clear()

    @property
    def latest(self) -> list[EmittedKernel]:
        """The kernels of the last call: one of each name, in the order of their launch."""
        last = {kernel.name: kernel for kernel in self.launched}
        return list(last.values())


@contextmanager
def diverted(architecture: str) -> Iterator[Emitted]:
    """Within, Wave kernels of SGLang are emitted for `architecture`, and their launches reach `Emitted.call`.

    Between two calls of `Emitted.forget` everything must be about one set of lengths, one dtype, one cap and one scale.
    """
    from wave_lang.kernel.wave import compile as wave_compiler

    os.environ["WAVE_CACHE_ON"] = "0"
    os.environ["WAVE_DEFAULT_ARCH"] = architecture
    emitted = Emitted()

    def emit(options: Any, kernel: Any, *rest: Any) -> Callable[..., None]:
        key = (str(kernel._name), frozenset((str(name), str(size)) for name, size in options.subs.items()))
        if key not in emitted.kernels:
            options.wave_runtime = False  # its runtime loads the code object onto a device
            options.compile_to_mlir = True
            made = wave_compiler.wave_compile(options, kernel, *rest)
            emitted.kernels[key] = EmittedKernel(key[0], made.asm, options)
        found = emitted.kernels[key]
        usages = [b.kernel_buffer_type.usage.name for b in found.options.kernel_sig.kernel_buffer_bindings]

        def launch(*arguments: Any) -> None:
            emitted.launched.append(found)
            emitted.call(found, *_sorted(arguments, usages))

        return launch

    modules = [importlib.import_module(name) for name in MODULES]
    kept = [module.wave_compile for module in modules]
    for module in modules:
        module.wave_compile = emit  # type: ignore[attr-defined]
    try:
        yield emitted
    finally:
        for module, before in zip(modules, kept, strict=True):
            module.wave_compile = before  # type: ignore[attr-defined]


def compile_emitted(kernel: EmittedKernel, folder: Path) -> None:
    """Make the code object of an emitted kernel with the flags that Wave itself gives to IREE; `folder` is new."""
    from wave_lang.kernel.wave.utils.compile_utils import compile_to_vmfb

    folder.mkdir(parents=True)
    kernel.options.dump_binaries = str(folder)
    try:
        compile_to_vmfb(kernel.mlir, kernel.options)
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
