"""Resources of compiled kernels, read from the code object itself."""

import io
import re
import subprocess
from pathlib import Path
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from kit.measurement import Record

_AMD_NOTE = 32
"""NT_AMDGPU_METADATA of LLVM's AMDGPU backend guide, "Code Object V3 and above"."""
_SECONDS = 60


class CodeObjectFault(Exception):
    """The bytes are no code object that can be read."""


class Resources(Record):
    """What one kernel takes, as its code object says.

    Attributes:
        kernel: its symbol.
        vector_registers: VGPRs and AGPRs of a thread together (AMD), registers of a thread (NVIDIA).
        accumulators: of these, AGPRs; None on NVIDIA.
        scalar_registers: SGPRs of a wave; None on NVIDIA.
        local_bytes: LDS, or shared memory.
        vector_spills, scalar_spills: registers that did not fit; None on NVIDIA, which tells the stack only.
        scratch_bytes: private memory of a thread: spills and stack.
        threads: largest workgroup that it was compiled for; None where the code object does not say.
    """

    kernel: str
    vector_registers: int
    accumulators: int | None = None
    scalar_registers: int | None = None
    local_bytes: int
    vector_spills: int | None = None
    scalar_spills: int | None = None
    scratch_bytes: int
    threads: int | None = None


def amd_resources(code: bytes) -> tuple[Resources, ...]:
    """The kernels of an AMD code object (``.hsaco``).

    Raises:
        CodeObjectFault: it is none, or it has no metadata.
    """
    try:
        elf = ELFFile(io.BytesIO(code))
        notes = [n for s in elf.iter_sections() if s["sh_type"] == "SHT_NOTE" for n in s.iter_notes()]
        found = [note["n_descdata"] for note in notes if note["n_name"] == "AMDGPU"]
        kernels = [k for data in found for k in msgpack.unpackb(data)["amdhsa.kernels"]]
    except (ELFError, ValueError, KeyError, msgpack.UnpackException) as error:
        raise CodeObjectFault(f"no AMD code object: {type(error).__name__}: {error}") from None
    if not kernels:
        raise CodeObjectFault("the code object holds no kernel")
    return tuple(_amd(kernel) for kernel in kernels)


def _amd(kernel: dict[str, Any]) -> Resources:
    return Resources(
        kernel=kernel[".name"],
        vector_registers=kernel[".vgpr_count"],
        accumulators=kernel.get(".agpr_count"),
        scalar_registers=kernel[".sgpr_count"],
        local_bytes=kernel[".group_segment_fixed_size"],
        vector_spills=kernel[".vgpr_spill_count"],
        scalar_spills=kernel[".sgpr_spill_count"],
        scratch_bytes=kernel[".private_segment_fixed_size"],
        threads=kernel.get(".max_flat_workgroup_size"),
    )


def nvidia_resources(code: bytes, cuobjdump: Path, scratch: Path, dynamic_shared: int) -> tuple[Resources, ...]:
    """The kernels of a cubin, by ``cuobjdump -res-usage``.

    Args:
        dynamic_shared: bytes of shared memory that the launch asks for beside the static ones.
    Raises:
        CodeObjectFault: cuobjdump cannot read it.
    """
    path = scratch / "kernel.cubin"
    path.write_bytes(code)
    command = [str(cuobjdump), "-res-usage", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    found = re.findall(r"Function ([^\s:]+):\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", told.stdout)
    if told.returncode or not found:
        raise CodeObjectFault(f"cuobjdump reads no kernel: {(told.stdout + told.stderr).strip()[-300:]}")
    return tuple(
        Resources(
            kernel=name,
            vector_registers=int(registers),
            local_bytes=int(shared) + dynamic_shared,
            scratch_bytes=int(stack) + int(local),
        )
        for name, registers, stack, shared, local in found
    )
