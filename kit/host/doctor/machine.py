"""The machine around the GPUs: clock, memory, shared memory, limits, disks, caches. Nothing here needs an engine or a driver."""

import fcntl
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from kit.finding import Finding, Severity
from kit.host.run_folder import RESERVE_BYTES
from kit.paths import cache_folder, package_folder
from kit.profile import Profile

_GIB = 2**30
_DAY = 86_400.0
_FEWEST_FILES = 4_096
_LEAST_BYTES = 2**20
_CACHE_BYTES = 256 * 2**20  # synthetic models, with room
_NOT_BEFORE = 1_735_689_600.0  # 2025-01-01: older than every image and profile


def look_at_machine(profile: Profile, results: Path, container: bool, claimed: bool) -> Iterator[Finding]:
    """All of it.

    Args:
        results: the folder in which results will lie; it need not exist.
        container: whether the run goes into one, which has shared memory and limits of its own.
        claimed: the space for reports is held already, so it is not among what is free.
    """
    yield look_at_clock(time.time(), _newest_source())
    yield look_at_memory(profile, psutil.virtual_memory().total, psutil.virtual_memory().available)
    if not container:
        yield look_at_shm(profile, Path("/dev/shm"))
    yield look_at_limits(profile, container)
    yield look_at_disk("results-disk", results, _LEAST_BYTES + (0 if claimed else RESERVE_BYTES), _GIB)
    yield look_at_cache(cache_folder())


def _newest_source() -> float:
    return max(path.stat().st_mtime for path in package_folder().glob("*.py"))


def look_at_clock(now: float, newest_source: float) -> Finding:
    """Waivers are dated, and reports carry times: the clock must not be before kit's own files, nor before their time."""
    day = time.strftime("%Y-%m-%d", time.gmtime(now))
    why = "waivers are dated, and the times of a report would be wrong"
    if now < _NOT_BEFORE:
        return Finding(
            check="clock",
            severity=Severity.REFUSE,
            what=f"it says {day}",
            why=why,
            remedy="set it, as with 'chronyd -q'",
        )
    if now < newest_source - _DAY:
        what = f"it says {day}, and kit's own files are newer"
        return Finding(check="clock", severity=Severity.WARN, what=what, why=why, remedy="check it")
    return Finding(check="clock", severity=Severity.OK, what=f"it says {day}")


def look_at_memory(profile: Profile, total: int, available: int) -> Finding:
    """Main memory in bytes against the limit of the profile's container."""
    wanted = int(profile.container.memory)
    what = f"{available / _GIB:.1f} of {total / _GIB:.1f} GiB are free, a run may take {wanted / _GIB:.1f}"
    if available >= wanted:
        return Finding(check="memory", severity=Severity.OK, what=what)
    return Finding(
        check="memory",
        severity=Severity.WARN,
        what=what,
        why="the kernel may end the run for want of it",
        remedy="end what else runs here",
    )


def look_at_shm(profile: Profile, place: Path) -> Finding:
    """Shared memory of a run without a container; a container is given its own."""
    wanted = int(profile.container.shm)
    try:
        status = os.statvfs(place)
        size = status.f_frsize * status.f_bavail
    except OSError:
        size = 0
    what = f"{place} has {size / _GIB:.2f} GiB free, the profile asks for {wanted / _GIB:.2f}"
    if size >= wanted:
        return Finding(check="shm", severity=Severity.OK, what=what)
    return Finding(
        check="shm",
        severity=Severity.REFUSE if profile.gpus > 1 else Severity.WARN,
        what=what,
        why="several GPUs exchange data there, and a full one is a bus error",
        remedy="give the container more with --shm-size, or mount it anew with size=",
    )


def look_at_limits(profile: Profile, container: bool) -> Finding:
    """Open files; without a container, also processes."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, processes = resource.getrlimit(resource.RLIMIT_NPROC)
    low = []
    if files != resource.RLIM_INFINITY and files < _FEWEST_FILES:
        low.append(f"{files} open files (ulimit -Hn), {_FEWEST_FILES} are needed")
    if not container and processes != resource.RLIM_INFINITY and processes < profile.container.pids:
        low.append(f"{processes} processes (ulimit -Hu), {profile.container.pids} are needed")
    if not low:
        return Finding(
            check="limits", severity=Severity.OK, what=f"{_limit(files)} open files, {_limit(processes)} processes"
        )
    return Finding(
        check="limits",
        severity=Severity.WARN,
        what="; ".join(low),
        why="engines open many sockets and threads",
        remedy="raise it in /etc/security/limits.conf, or in the unit that starts kit",
    )


def _limit(value: int) -> str:
    return "any number of" if value == resource.RLIM_INFINITY else str(value)


def look_at_disk(check: str, place: Path, least: int, better: int) -> Finding:
    """Free bytes where `place` is or will be: below `least` nothing can be written, below `better` a run may end early."""
    there = next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())
    status = os.statvfs(there)
    free = status.f_frsize * status.f_bavail
    what = f"{free / _GIB:.2f} GiB are free at {there}"
    if free >= better:
        return Finding(check=check, severity=Severity.OK, what=what)
    return Finding(
        check=check,
        severity=Severity.REFUSE if free < least else Severity.WARN,
        what=what,
        why="a full disk ends a run in its middle",
        remedy=f"free {better / _GIB:.1f} GiB, or use another disk",
    )


def look_at_cache(folder: Path) -> Finding:
    """Whether the caller can write and lock in the cache; what lies there from another user, such as root, cannot be renewed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for place in (folder, folder / "synthetic"):
            if place.is_dir():
                with tempfile.TemporaryFile(dir=place) as probe:
                    fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = _owner(folder)
        return Finding(
            check="cache",
            severity=Severity.REFUSE,
            what=f"{error.filename or folder} cannot be written by user {os.geteuid()}: {error.strerror}{owner}",
            why="models are made and kept there",
            remedy="give it to that user, or set KIT_CACHE to a folder that can be written",
        )
    disk = look_at_disk("cache", folder, _CACHE_BYTES, _CACHE_BYTES)
    return (
        disk
        if disk.severity is not Severity.OK
        else disk.model_copy(update={"what": f"{folder} can be written; {disk.what}"})
    )


def _owner(folder: Path) -> str:
    try:
        return f"; it belongs to user {folder.stat().st_uid}"
    except OSError:
        return ""
