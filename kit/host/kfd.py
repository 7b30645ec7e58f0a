"""AMD GPUs as the kernel's KFD driver tells them below ``/sys/class/kfd``. Nothing is opened but text files.

A GPU that is split into partitions appears as one topology node, with one render node, for each of them.
"""

from collections import Counter
from pathlib import Path

from kit.host.gpu import Gpu

_KFD = "sys/class/kfd/kfd"
_VIDEO_MEMORY = (1, 2)  # HSA_MEM_HEAP_TYPE_FB_PUBLIC and _PRIVATE of the kernel's kfd_topology.h


def kfd_gpus(root: Path) -> tuple[Gpu, ...]:
    """The GPUs of the machine whose file tree is at `root`, in KFD's order, integrated ones included.

    Nodes that this process may not read are left out: a container sees those of its own GPUs only.
    """
    busy = _busy(root / _KFD / "proc")
    nodes = (root / _KFD / "topology" / "nodes").glob("[0-9]*")
    gpus: list[Gpu] = []
    partitions: Counter[str] = Counter()
    for node in sorted(nodes, key=lambda path: int(path.name)):
        properties = _properties(node / "properties")
        gpu_id = _text(node / "gpu_id")
        if gpu_id in ("", "0") or not properties.get("gfx_target_version"):
            continue
        pci = pci_address(properties.get("domain", 0), properties.get("location_id", 0))
        device = root / "sys/bus/pci/devices" / pci
        modes = (_text(device / "current_compute_partition"), _text(device / "current_memory_partition"))
        unique = properties.get("unique_id", 0)
        gpus.append(
            Gpu(
                index=len(gpus),
                vendor="amd",
                architecture=architecture_name(properties["gfx_target_version"]),
                memory=_memory(node),
                render_node=f"/dev/dri/renderD{properties.get('drm_render_minor', 0)}",
                unique_id=f"{f'{unique:016x}' if unique else pci}-{partitions[pci]}",
                device_id=properties.get("device_id", 0),
                partition="/".join(mode for mode in modes if mode),
                busy_pids=busy.get(gpu_id, ()),
                used=_used(device) if modes[0] in ("", "SPX") else 0,
            )
        )
        partitions[pci] += 1
    return tuple(gpus)


def _used(device: Path) -> int:
    """Bytes in use of a whole GPU; the driver does not tell it of a partition."""
    text = _text(device / "mem_info_vram_used")
    return int(text) if text.isdigit() else 0


def architecture_name(target: int) -> str:
    """``gfx_target_version`` as compilers write it: 90500 is gfx950, 90010 is gfx90a (decimal pairs, then hexadecimal digits)."""
    return f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}"


def _memory(node: Path) -> int:
    banks = [_properties(path) for path in node.glob("mem_banks/[0-9]*/properties")]
    return sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _VIDEO_MEMORY)


def pci_address(domain: int, location: int) -> str:
    """``0000:c1:00.0`` from KFD's domain and location id (bus in bits 8 to 15, device in 3 to 7, function in 0 to 2)."""
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 0x7:x}"


def _busy(processes: Path) -> dict[str, tuple[int, ...]]:
    """Per KFD GPU id, the processes that hold memory or a queue of it. An open ``/dev/kfd`` alone occupies nothing."""
    holders: dict[str, set[int]] = {}
    for process in processes.glob("[0-9]*"):
        used = {path.name.removeprefix("vram_") for path in process.glob("vram_*") if _text(path) not in ("", "0")}
        used |= {_text(path) for path in process.glob("queues/*/gpuid")}
        for gpu_id in used:
            holders.setdefault(gpu_id, set()).add(int(process.name))
    return {gpu_id: tuple(sorted(pids)) for gpu_id, pids in holders.items()}


def _properties(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
