"""What the drivers tell of the GPUs, held against a profile. Architecture is what the driver reports, never a host or product name."""

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kit.errors import EnvironmentFault
from kit.finding import Finding, Severity
from kit.host.devices import KFD, device_nodes, why_not, why_unfit
from kit.host.gpu import Gpu
from kit.profile import Profile, load_profiles

_WRONG = "a result from other hardware says nothing about this profile's"
_BUSY = "what else runs there takes memory and time from the run"


def look_at_gpus(
    profile: Profile, gpus: Sequence[Gpu], root: Path, container: bool, given: bool = False
) -> Iterator[Finding]:
    """Architecture, count, model, partition, memory, processes and permissions.

    Args:
        gpus: as `kit.host.devices.host_gpus` gives them.
        root: where the machine's file tree begins.
        container: whether the run goes into one; there, groups of the device nodes are handed on.
        given: the caller has chosen GPUs by a variable of the vendor, so which of them are free is the caller's affair.
    """
    if profile.gpus == 0:
        yield _processor(profile)
        return
    own = [gpu for gpu in gpus if gpu.vendor == profile.vendor]
    fitting = [gpu for gpu in own if gpu.architecture == profile.architecture]
    yield _architecture(profile, own or gpus, bool(fitting))
    if not fitting or given:
        return
    count = _count(profile, own)
    yield count
    yield from (_state(profile, gpu, count.severity) for gpu in own)
    if profile.vendor == "amd":
        yield from _permissions(fitting, root, container)


def _processor(profile: Profile) -> Finding:
    machine = platform.machine()
    if machine == profile.architecture:
        return Finding(check="architecture", severity=Severity.OK, what=f"the processor is {machine}; no GPU is needed")
    return Finding(
        check="architecture",
        severity=Severity.REFUSE,
        what=f"the processor is {machine}, the profile {profile.name} is for {profile.architecture}",
        why=_WRONG,
        remedy="run on a machine of that kind",
    )


def _architecture(profile: Profile, there: Sequence[Gpu], fits: bool) -> Finding:
    counted = Counter(gpu.architecture for gpu in there)
    told = ", ".join(f"{count} × {name}" for name, count in counted.items()) or "no GPU"
    if fits:
        return Finding(check="architecture", severity=Severity.OK, what=f"the driver reports {told}")
    named = [p.name for p in load_profiles().values() if 0 < p.gpus <= sum(why_unfit(p, gpu) is None for gpu in there)]
    return Finding(
        check="architecture",
        severity=Severity.REFUSE,
        what=f"the driver reports {told}, the profile {profile.name} is for {profile.gpus} × {profile.architecture}",
        why=_WRONG,
        remedy=f"use --profile {' or '.join(named)}" if named else "see to the driver, or choose another machine",
    )


def _count(profile: Profile, own: Sequence[Gpu]) -> Finding:
    free = sum(why_not(profile, gpu) is None for gpu in own)
    if free >= profile.gpus:
        return Finding(
            check="gpu-count", severity=Severity.OK, what=f"{free} fit and are free, {profile.gpus} are needed"
        )
    fit = sum(why_unfit(profile, gpu) is None for gpu in own)
    return Finding(
        check="gpu-count",
        severity=Severity.REFUSE,
        what=f"{fit} GPUs fit the profile and {free} of them are free, {profile.gpus} are needed",
        why="the profile is a promise about that many",
        remedy="free them, or choose the profile of this count",
    )


def _state(profile: Profile, gpu: Gpu, count: Severity) -> Finding:
    """One GPU; what is wrong with it matters only where too few others are left."""
    if (reason := why_not(profile, gpu)) is not None:
        if count is Severity.OK:
            return Finding(check="gpu", severity=Severity.OK, what=f"{reason}; no run takes it")
        remedy = "end what runs there; reset the GPU where nothing does"
        return Finding(check="gpu", severity=Severity.WARN, what=reason, why=_BUSY, remedy=remedy)
    mode = f", {gpu.partition}" if gpu.partition else ""
    memory = f", {gpu.used / 2**30:.1f} of {gpu.memory / 2**30:.0f} GiB in use" if gpu.memory else ""
    return Finding(check="gpu", severity=Severity.OK, what=f"GPU {gpu.index} is {gpu.architecture}{mode}{memory}")


def _permissions(gpus: Sequence[Gpu], root: Path, container: bool) -> Iterator[Finding]:
    nodes = device_nodes(gpus, root)
    for path in dict.fromkeys((KFD, *(gpu.render_node for gpu in gpus))):
        node = nodes.get(path)
        if node is None:
            what, remedy = f"{path} is not there", "load the amdgpu driver; in a container, hand it in with --device"
        elif os.access(root / path.lstrip("/"), os.R_OK | os.W_OK) or (container and node.open_to_group):
            continue
        else:
            what = f"{path} is closed to user {os.geteuid()} (mode {node.mode:o}, group {node.group})"
            remedy = f"add the user to group {node.group}, or open it by a udev rule"
        yield Finding(
            check="device-permissions",
            severity=Severity.REFUSE,
            what=what,
            why="rocm-smi works without it, and no kernel does",
            remedy=remedy,
        )
        return
    yield Finding(check="device-permissions", severity=Severity.OK, what=f"{KFD} and {len(gpus)} render nodes are open")


def look_at_driver(profile: Profile, facts: dict[str, str], cuda: tuple[int, int] | None, needs: int | None) -> Finding:
    """The driver, against what the image was built for.

    Args:
        facts: of `kit.host.drivers.driver_facts`.
        cuda: the newest CUDA that an NVIDIA driver serves (major, minor); None where it does not tell.
        needs: CUDA major version of the image; None where it has none. A driver serves every minor version of its own major
            and of older ones (CUDA compatibility, NVIDIA's documentation).
    """
    version = facts.get(f"driver.{profile.vendor}" if profile.vendor == "nvidia" else "driver.amdgpu")
    told = f"driver {version or 'of unknown version'}" + (f", CUDA {cuda[0]}.{cuda[1]}" if cuda else "")
    firmware = sum(key.startswith("firmware.") for key in facts)
    if cuda and needs and cuda[0] < needs:
        return Finding(
            check="driver",
            severity=Severity.REFUSE,
            what=f"{told}; the image needs CUDA {needs}",
            why="its kernels do not load on an older driver",
            remedy=f"install a driver for CUDA {needs}, or choose an image for CUDA {cuda[0]}",
        )
    return Finding(check="driver", severity=Severity.OK, what=f"{told}, {firmware} firmware versions on record")


def gpus_or_fault(read: Callable[[], tuple[Gpu, ...]]) -> tuple[tuple[Gpu, ...], Finding | None]:
    """The GPUs; where a driver is there and does not answer, none, and a finding that says so."""
    try:
        return read(), None
    except EnvironmentFault as fault:
        return (), Finding(
            check="driver", severity=Severity.REFUSE, what=fault.problem, why="no GPU can be used", remedy=fault.remedy
        )
