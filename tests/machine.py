"""A simulated machine: the files below /sys and /dev by which drivers tell of their GPUs, as the kernel writes them."""

from dataclasses import dataclass, field
from pathlib import Path

KFD = "sys/class/kfd/kfd"
MI300X, MI355X, INTEGRATED = (90402, 0x74A1), (90500, 0x75A3), (100306, 0x13C0)
GIB = 2**30


@dataclass
class Machine:
    """Writes files below `root`; `devices` are the paths of the device nodes, which are plain files here."""

    root: Path
    nodes: int = 0
    minor: int = 128
    devices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.write(f"{KFD}/topology/nodes/0/gpu_id", "0")
        self.properties(f"{KFD}/topology/nodes/0/properties", cpu_cores_count=128, simd_count=0, gfx_target_version=0)
        self.nodes = 1

    def write(self, path: str, text: str) -> None:
        """One file; its folders are made."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")

    def properties(self, path: str, **values: int) -> None:
        """A file of names and numbers."""
        self.write(path, "\n".join(f"{name} {value}" for name, value in values.items()))

    def device(self, path: str) -> None:
        """A device node."""
        self.write(path.lstrip("/"), "")
        self.devices.append(path)

    def amd(
        self, model: tuple[int, int] = MI355X, parts: int = 1, mode: str = "SPX/NPS1", memory: int = 288 * GIB
    ) -> None:
        """One GPU, in as many partitions as told: the kernel makes a topology node and a render node of each."""
        if "/dev/kfd" not in self.devices:
            self.device("/dev/kfd")
        bus = 0x10 + self.nodes
        pci = f"sys/bus/pci/devices/0000:{bus:02x}:00.0"
        if mode:
            self.write(f"{pci}/current_compute_partition", mode.split("/")[0])
            self.write(f"{pci}/current_memory_partition", mode.split("/")[1])
        unique = 0xA000 + self.nodes
        for part in range(parts):
            node = f"{KFD}/topology/nodes/{self.nodes}"
            self.write(f"{node}/gpu_id", str(self.gpu_id(self.nodes)))
            self.properties(
                f"{node}/properties",
                cpu_cores_count=0,
                simd_count=1024 // parts,
                gfx_target_version=model[0],
                vendor_id=0x1002,
                device_id=model[1],
                location_id=part << 28 | bus << 8,
                domain=0,
                drm_render_minor=self.minor,
                unique_id=unique,
            )
            self.properties(f"{node}/mem_banks/0/properties", heap_type=1, size_in_bytes=memory // parts)
            self.device(f"/dev/dri/card{self.nodes}")
            self.device(f"/dev/dri/renderD{self.minor}")
            self.nodes += 1
            self.minor += 8 if parts == 1 else 1

    @staticmethod
    def gpu_id(node: int) -> int:
        """KFD's own number of a GPU."""
        return 50000 + node

    def process(self, pid: int, node: int, vram: int = 0, queues: int = 0) -> None:
        """A process with KFD open, which holds `vram` bytes and `queues` queues of a node."""
        place = f"{KFD}/proc/{pid}"
        self.write(f"{place}/pasid", "32770")
        for other in range(1, self.nodes):
            self.write(f"{place}/vram_{self.gpu_id(other)}", str(vram if other == node else 0))
        for queue in range(queues):
            self.write(f"{place}/queues/{queue}/gpuid", str(self.gpu_id(node)))
