"""What an architecture allows a kernel, as data with its source."""

from typing import Final, Literal

from kit.measurement import Record
from kit.names import unknown


class Architecture(Record):
    """Limits of one GPU architecture for one kernel.

    Attributes:
        name: as profiles and drivers name it.
        backend: ``hip`` or ``cuda``, as Triton names it.
        capability: what Triton calls the architecture: the name on AMD, the number of the compute capability on NVIDIA.
        torch_capability: what ``torch.cuda.get_device_capability`` says there.
        wave: threads that run in lockstep (wave, warp).
        local_bytes: LDS of a workgroup (AMD), or shared memory of a block (NVIDIA).
        vector_registers: architectural and accumulation registers of a thread together (AMD), registers of a thread (NVIDIA).
        scalar_registers: SGPRs of a wave; None on NVIDIA, which has no such count.
        source: where the numbers stand.
    """

    name: str
    backend: Literal["hip", "cuda"]
    capability: str | int
    torch_capability: tuple[int, int]
    wave: int
    local_bytes: int
    vector_registers: int
    scalar_registers: int | None
    source: str


_CDNA: Final = (
    "AMD CDNA3 and CDNA4 ISA references, chapter 3 (512 unified VGPRs a lane, 102 SGPRs and VCC, XNACK and trap above)"
)
_NVIDIA: Final = "CUDA C++ Programming Guide, table 'Technical Specifications per Compute Capability'"

ARCHITECTURES: Final[dict[str, Architecture]] = {
    found.name: found
    for found in (
        Architecture(
            name="gfx942",
            backend="hip",
            capability="gfx942",
            torch_capability=(9, 4),
            wave=64,
            local_bytes=65_536,
            vector_registers=512,
            scalar_registers=108,
            source=_CDNA,
        ),
        Architecture(
            name="gfx950",
            backend="hip",
            capability="gfx950",
            torch_capability=(9, 5),
            wave=64,
            local_bytes=163_840,
            vector_registers=512,
            scalar_registers=108,
            source=_CDNA,
        ),
        Architecture(
            name="sm_90",
            backend="cuda",
            capability=90,
            torch_capability=(9, 0),
            wave=32,
            local_bytes=227 * 1024,
            vector_registers=255,
            scalar_registers=None,
            source=_NVIDIA,
        ),
        Architecture(
            name="sm_100",
            backend="cuda",
            capability=100,
            torch_capability=(10, 0),
            wave=32,
            local_bytes=227 * 1024,
            vector_registers=255,
            scalar_registers=None,
            source=_NVIDIA,
        ),
    )
}


def find_architecture(name: str) -> Architecture:
    """The limits of an architecture.

    Raises:
        UsageFault: none are recorded for it.
    """
    if found := ARCHITECTURES.get(name):
        return found
    raise unknown("architecture", name, ARCHITECTURES)
