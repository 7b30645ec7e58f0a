"""SGLang's own Triton launchers, with Triton's compiler led to an architecture that this machine lacks.

A driver without a device tells Triton which architecture to compile for, and every launch becomes a warm-up: the kernel
is compiled with the very arguments that SGLang gives, specialised as on the GPU, and nothing runs.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from kit.offline.architectures import Architecture
from kit.offline.code_object import Resources, amd_resources, nvidia_resources

_FLAGS = ("_is_hip", "_is_cuda", "_is_gfx95", "_is_gfx1250", "CUDA_CAPABILITY")


class _NoDevice:
    """What Triton asks of its active driver in order to compile."""

    def __init__(self, architecture: Architecture) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget(architecture.backend, architecture.capability, architecture.wave)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")


@contextmanager
def diverted(architecture: Architecture, modules: tuple[ModuleType, ...], scratch: Path) -> Iterator[list[Resources]]:
    """Within, Triton kernels are compiled for `architecture` and not launched.

    Args:
        modules: of SGLang's launchers, whose idea of the platform is set to that architecture.
        scratch: an empty folder for Triton's cache.
    Yields:
        The resources of the kernels, in the order of their launch.
    Raises:
        CodeObjectFault: on leaving a launch, a code object that cannot be read.
    """
    os.environ["TRITON_CACHE_DIR"] = str(scratch)
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    driver.set_active(_NoDevice(architecture))
    found: list[Resources] = []
    launch = JITFunction.run

    def compile_only(self: Any, *arguments: Any, **options: Any) -> Any:
        self.device_caches.clear()  # it is held per device, whatever the architecture
        compiled = launch(self, *arguments, **{**options, "warmup": True})
        found.extend(_resources(compiled, architecture, scratch))
        return compiled

    kept = [(module, name, getattr(module, name)) for module in modules for name in _FLAGS if hasattr(module, name)]
    for module in modules:
        for name, value in _platform(architecture).items():
            setattr(module, name, value)
    JITFunction.run = compile_only
    try:
        yield found
    finally:
        JITFunction.run = launch
        for module in modules:
            for name in _FLAGS:
                if hasattr(module, name):
                    delattr(module, name)
        for module, name, value in kept:
            setattr(module, name, value)


def _platform(architecture: Architecture) -> dict[str, Any]:
    """The flags by which SGLang's launchers choose block sizes."""
    amd = architecture.backend == "hip"
    return {
        "_is_hip": amd,
        "_is_cuda": not amd,
        "_is_gfx95": architecture.name.startswith("gfx95"),
        "_is_gfx1250": False,
        "CUDA_CAPABILITY": architecture.torch_capability,
    }


def _resources(compiled: Any, architecture: Architecture, scratch: Path) -> tuple[Resources, ...]:
    if architecture.backend == "hip":
        # LDS is asked for at launch, so the code object does not hold it.
        return tuple(
            r.model_copy(update={"local_bytes": max(r.local_bytes, compiled.metadata.shared)})
            for r in amd_resources(compiled.asm["hsaco"])
        )
    import triton

    cuobjdump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return nvidia_resources(compiled.asm["cubin"], cuobjdump, scratch, compiled.metadata.shared)
