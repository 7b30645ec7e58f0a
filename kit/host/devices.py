"""From a profile and a machine to the GPUs of a run, and what the container gets to reach them.

`host_gpus` and `device_nodes` read the machine; all else here is a pure function of what they found.
"""

import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from kit.errors import EnvironmentFault, UsageFault
from kit.host.gpu import Gpu, Node
from kit.host.kfd import kfd_gpus
from kit.host.nvml import nvml_gpus
from kit.profile import Profile

KFD: Final = "/dev/kfd"
_NUMBERS = re.compile(r"[0-9]{1,3}(,[0-9]{1,3})*")
CDI_KIND: Final = "nvidia.com/gpu"
_DIRTY_PART: Final = 0.05
"""Drivers keep up to 1 GiB for themselves; engines left tens of GiB behind (sglang issues 24586, 30431)."""
KEEP_GROUPS: Final = "keep-groups"
"""Podman's word for "the groups of the caller" (the annotation run.oci.keep_original_groups); it stands alone."""


@dataclass(frozen=True)
class EngineFacts:
    """What the container engine can do.

    Attributes:
        kind, version: such as docker 28.
        rootless: it runs as the caller, who is root inside; numbers of groups of the host mean nothing there.
        cdi: the kinds of devices of which a CDI specification exists, such as ``nvidia.com/gpu``; empty where the engine has no CDI.
        remapped: its containers see other user ids than the host (dockerd's ``userns-remap``).
        keeps_groups: its socket can be told to leave a container the caller's groups.
    """

    kind: Literal["docker", "podman"] = "docker"
    version: str = ""
    rootless: bool = False
    cdi: frozenset[str] = frozenset()
    remapped: bool = False
    keeps_groups: bool = False


@dataclass(frozen=True)
class ContainerDevices:
    """How a container reaches its GPUs.

    Attributes:
        devices: device nodes, each by its full path.
        groups: numbers of the groups that own them, or `KEEP_GROUPS`.
        cdi: devices by their CDI names. gpu_ids: devices of NVIDIA's runtime, where the engine has no CDI.
        environment: which of the GPUs the runtime inside shows, by the numbers that they have inside.
    """

    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    gpu_ids: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


def host_gpus(root: Path = Path("/"), nvidia: Callable[[], tuple[Gpu, ...]] = nvml_gpus) -> tuple[Gpu, ...]:
    """The GPUs of this machine, AMD's first; each vendor's own are numbered from 0.

    Args:
        root: where the machine's file tree begins.
        nvidia: gives NVIDIA's GPUs; their driver tells nothing below /sys.
    """
    return (*kfd_gpus(root), *nvidia())


def device_nodes(gpus: Iterable[Gpu], root: Path = Path("/")) -> dict[str, Node]:
    """The device nodes by which a process reaches these GPUs, by path; those that do not exist are left out."""
    paths = [KFD, *(gpu.render_node for gpu in gpus if gpu.render_node)]
    nodes = {}
    for path in paths:
        try:
            found = (root / path.lstrip("/")).stat()
        except OSError:
            continue
        nodes[path] = Node(path, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))
    return nodes


def why_unfit(profile: Profile, gpu: Gpu) -> str | None:
    """Why `gpu` is not one that `profile` is about, in a clause that begins with it; None if it is one, busy or not."""
    if gpu.architecture != profile.architecture:
        return f"GPU {gpu.index} is {gpu.architecture}"
    if gpu.device_id and profile.pci_devices and f"0x{gpu.device_id:04x}" not in profile.pci_devices:
        return f"GPU {gpu.index} is another model (PCI device 0x{gpu.device_id:04x})"
    if gpu.partition == "MIG" or (gpu.partition and profile.partition and gpu.partition != profile.partition):
        return f"GPU {gpu.index} is split as {gpu.partition}, not {profile.partition or 'whole'}"
    if profile.gpu_memory and gpu.memory and gpu.memory < profile.gpu_memory:
        return f"GPU {gpu.index} has {gpu.memory / 2**30:.0f} GiB of memory, not {profile.gpu_memory / 2**30:.0f}"
    return None


def why_not(profile: Profile, gpu: Gpu) -> str | None:
    """As `why_unfit`, and also where other processes use it, or used it and left their memory there."""
    if (unfit := why_unfit(profile, gpu)) is not None:
        return unfit
    if not gpu.busy_pids:
        return _why_dirty(gpu)
    many = "process" if len(gpu.busy_pids) == 1 else "processes"
    return f"GPU {gpu.index} is in use by {many} {', '.join(map(str, gpu.busy_pids))}"


def _why_dirty(gpu: Gpu) -> str | None:
    """Memory that no process holds: what a killed process left, and what only a reset of the GPU brings back."""
    if gpu.used <= _DIRTY_PART * gpu.memory:
        return None
    return f"GPU {gpu.index} has {gpu.used / 2**30:.1f} of {gpu.memory / 2**30:.0f} GiB in use, and no process is seen there"


def gpu_numbers(typed: str | None) -> tuple[int, ...]:
    """What ``--gpus`` says: numbers with commas between them; none where nothing was typed.

    Raises:
        UsageFault: it is something else.
    """
    if typed is None:
        return ()
    if not _NUMBERS.fullmatch(typed):
        raise UsageFault(f"--gpus is '{typed}'", "give numbers with commas between them, such as 0,1")
    return tuple(map(int, typed.split(",")))


def check_wanted(profile: Profile, wanted: Sequence[int]) -> None:
    """Refuse numbers of GPUs that no machine could satisfy; none at all means the first free ones.

    Raises:
        UsageFault: a number twice, or another count than the profile's.
    """
    if wanted and profile.gpus == 0:
        raise UsageFault(f"profile {profile.name} needs no GPU", "drop --gpus")
    if wanted and len(set(wanted)) != len(wanted):
        raise UsageFault("--gpus names a GPU twice", f"name {profile.gpus} different ones")
    if wanted and len(wanted) != profile.gpus:
        raise UsageFault(
            f"profile {profile.name} needs {profile.gpus} GPUs, --gpus names {len(wanted)}",
            f"name {profile.gpus}, or choose the profile of that count",
        )


def choose(profile: Profile, gpus: Sequence[Gpu], wanted: Sequence[int] = ()) -> tuple[Gpu, ...]:
    """The GPUs for a run: those that are `wanted`, by `Gpu.index`, else the first free ones that fit.

    Raises:
        UsageFault: what is wanted cannot be meant (`check_wanted`), or a number that no GPU has.
        EnvironmentFault: too few fit and are free; every other one is named with the reason.
    """
    check_wanted(profile, wanted)
    own = {gpu.index: gpu for gpu in gpus if gpu.vendor == profile.vendor}
    if unknown := [index for index in wanted if index not in own]:
        there = ", ".join(map(str, own)) or "none"
        raise UsageFault(f"this machine has no GPU {unknown[0]} of vendor {profile.vendor}", f"there: {there}")
    candidates = [own[index] for index in wanted] if wanted else list(own.values())
    reasons = {gpu.index: why_not(profile, gpu) for gpu in candidates}
    free = [gpu for gpu in candidates if reasons[gpu.index] is None]
    if len(free) < profile.gpus:
        raise too_few(profile, len(free), [reason for reason in reasons.values() if reason])
    return tuple(free[: profile.gpus])


def too_few(profile: Profile, free: int, reasons: Sequence[str]) -> EnvironmentFault:
    """The fault for a machine with fewer free GPUs that fit than the profile needs."""
    needs = (
        f"profile {profile.name} needs {profile.gpus} × {profile.architecture}, and {free or 'none'} can be had here"
    )
    why = ": " + "; ".join(reasons) if reasons else ""
    return EnvironmentFault(needs + why, "free them, or choose the profile of this machine")


def container_devices(
    profile: Profile, chosen: Sequence[Gpu], nodes: Mapping[str, Node], engine: EngineFacts, uid: int
) -> ContainerDevices:
    """What the container gets to reach the `chosen` GPUs, and nothing beside them.

    Inside, the runtimes number what they can reach from 0, whatever the numbers on the host.

    Args:
        nodes: of this machine, as `device_nodes` gives them.
        uid: the user of this machine as whom the container's processes count.

    Raises:
        EnvironmentFault: a node is missing or closed to the caller, or the engine has no way to hand in the GPUs.
    """
    inside = ",".join(str(number) for number in range(len(chosen)))
    if not chosen:
        return ContainerDevices()
    if profile.vendor == "nvidia":
        cdi, ids = _nvidia(chosen, engine)
        return ContainerDevices(cdi=cdi, gpu_ids=ids, environment={"CUDA_VISIBLE_DEVICES": inside})
    paths = (KFD, *(gpu.render_node for gpu in chosen))
    if missing := [path for path in paths if path not in nodes]:
        raise EnvironmentFault(f"device {missing[0]} is not on this machine", "load the amdgpu driver")
    return ContainerDevices(
        devices=paths,
        groups=_groups([nodes[path] for path in paths], engine, uid),
        environment={"ROCR_VISIBLE_DEVICES": inside, "HIP_VISIBLE_DEVICES": inside},
    )


def _nvidia(chosen: Sequence[Gpu], engine: EngineFacts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if CDI_KIND in engine.cdi:
        return tuple(f"{CDI_KIND}={gpu.index}" for gpu in chosen), ()
    if engine.kind == "podman":
        raise EnvironmentFault(
            f"podman {engine.version} cannot hand in NVIDIA GPUs: that takes podman 6, and a CDI specification of them",
            "run 'nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml' with podman 6, or use docker",
        )
    return (), tuple(gpu.unique_id for gpu in chosen)


def _groups(nodes: Sequence[Node], engine: EngineFacts, uid: int) -> tuple[str, ...]:
    """By number: an image may know the groups by other names, and a host may have no name for them at all."""
    foreign = [node for node in nodes if not node.open_to(uid)]
    if engine.rootless and foreign and engine.keeps_groups:
        return (KEEP_GROUPS,)
    if engine.rootless and foreign:
        who = f"{engine.kind} {engine.version}".strip()
        raise EnvironmentFault(
            f"device {foreign[0].path} is open to group {foreign[0].group} only, and rootless {who} cannot hand on a group",
            "use podman 5.1 or later with crun, or an engine that runs as root",
        )
    if closed := [node for node in foreign if not node.open_to_group]:
        raise EnvironmentFault(
            f"device {closed[0].path} has no group that may use it (mode {closed[0].mode:o}, group {closed[0].group})",
            "give it to a group such as render by a udev rule",
        )
    return tuple(dict.fromkeys(str(node.group) for node in foreign))


def nominal(profile: Profile, wanted: Sequence[int] = ()) -> ContainerDevices:
    """What `container_devices` gives on a machine of the profile, for a dry run: what only a machine knows is in angle brackets."""
    check_wanted(profile, wanted)
    numbers = [str(index) for index in wanted] or [f"<GPU {place}>" for place in range(profile.gpus)]
    inside = ",".join(str(number) for number in range(profile.gpus))
    match profile.vendor:
        case "nvidia":
            cdi = tuple(f"{CDI_KIND}={number}" for number in numbers)
            return ContainerDevices(cdi=cdi, environment={"CUDA_VISIBLE_DEVICES": inside})
        case "amd":
            names = [number.strip("<>") if wanted == () else f"GPU {number}" for number in numbers]
            return ContainerDevices(
                devices=(KFD, *(f"/dev/dri/<render node of {name}>" for name in names)),
                groups=("<group of these devices>",),
                environment={"ROCR_VISIBLE_DEVICES": inside, "HIP_VISIBLE_DEVICES": inside},
            )
        case _:
            return ContainerDevices()
