"""What kit knows of one GPU of this machine, and of one device node. Data only."""

from dataclasses import dataclass
from typing import Literal

GpuVendor = Literal["amd", "nvidia"]


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one partition of a GPU that is split.

    Attributes:
        index: place among the GPUs of its vendor, from 0, in the order of the vendor's driver: what ``--gpus`` names.
        architecture: as in profiles, such as gfx950 or sm_100; never guessed from a product name.
        memory: bytes; 0 where the driver does not say.
        render_node: device node that is handed into a container (``/dev/dri/renderD128``); empty with NVIDIA.
        unique_id: the same on every boot, and another for every GPU and partition; names the lock.
        device_id: PCI device id, such as 0x75a3, which tells apart models of one architecture; 0 where it is not known.
        partition: compute and memory mode, such as ``SPX/NPS1``; ``MIG`` for a split NVIDIA GPU; empty where there is none.
        busy_pids: processes of this machine that hold memory or queues of it.
        used: bytes of its memory that are in use, by whomever.
    """

    index: int
    vendor: GpuVendor
    architecture: str
    memory: int
    render_node: str
    unique_id: str
    device_id: int = 0
    partition: str = ""
    busy_pids: tuple[int, ...] = ()
    used: int = 0


@dataclass(frozen=True)
class Node:
    """A device node: who owns it, and its permission bits (as in ``0o660``)."""

    path: str
    owner: int
    group: int
    mode: int

    def open_to(self, uid: int) -> bool:
        """Whether a user may read and write it without its group."""
        return self.mode & 0o006 == 0o006 or (self.owner == uid and self.mode & 0o600 == 0o600)

    @property
    def open_to_group(self) -> bool:
        """Whether its group may read and write it; the group of root is handed on to nobody."""
        return self.group != 0 and self.mode & 0o060 == 0o060
