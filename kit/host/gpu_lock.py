"""One run per GPU: a lock on a file of this machine for each of them, held as long as the run. A killed run holds none."""

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kit.errors import EnvironmentFault
from kit.host.devices import choose, too_few, why_not
from kit.host.gpu import Gpu
from kit.profile import Profile

_FOLDERS = (Path("/run/lock"), Path("/tmp"))  # every user of the machine must meet in the same one
_CHOOSING = "choosing"


def lock_folder() -> Path:
    """Where the locks of this machine lie: the first of /run/lock and /tmp that everyone may write to.

    Raises:
        EnvironmentFault: neither is.
    """
    for folder in _FOLDERS:
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise EnvironmentFault(f"no folder for locks: neither {_FOLDERS[0]} nor {_FOLDERS[1]} can be written", "open one")


@contextmanager
def reserved(
    profile: Profile, gpus: Sequence[Gpu], wanted: Sequence[int] = (), folder: Path | None = None
) -> Iterator[tuple[Gpu, ...]]:
    """Choose GPUs as `kit.host.devices.choose` does, without those that other runs hold, and hold them until the end.

    Two runs that choose at the same time do so one after the other, so neither takes a part of what the other needs.

    Raises:
        UsageFault, EnvironmentFault: as `choose`; a GPU that another run holds counts as in use.
    """
    folder = folder or lock_folder()
    with ExitStack() as held:
        with _lock(folder, _CHOOSING, wait=True):
            taken: dict[int, str] = {}
            while True:
                rest = [gpu for gpu in gpus if gpu.vendor != profile.vendor or gpu.index not in taken]
                chosen = _choose(profile, rest, gpus, wanted, taken)
                for gpu in chosen:
                    try:
                        held.enter_context(_lock(folder, gpu.unique_id))
                    except BlockingIOError:
                        taken[gpu.index] = f"GPU {gpu.index} is held by {_holder(folder, gpu.unique_id)}"
                if not any(gpu.index in taken for gpu in chosen):
                    break
                held.close()
        yield chosen


def _choose(
    profile: Profile, rest: Sequence[Gpu], gpus: Sequence[Gpu], wanted: Sequence[int], taken: dict[int, str]
) -> tuple[Gpu, ...]:
    own = [gpu for gpu in gpus if gpu.vendor == profile.vendor and (not wanted or gpu.index in wanted)]
    reasons = [reason for gpu in own if (reason := taken.get(gpu.index) or why_not(profile, gpu))]
    if taken and len(own) - len(reasons) < profile.gpus:
        raise too_few(profile, len(own) - len(reasons), reasons)
    return choose(profile, rest, wanted)


def _path(folder: Path, name: str) -> Path:
    return folder / f"kit-gpu-{re.sub(r'[^A-Za-z0-9-]', '_', name)}.lock"


@contextmanager
def _lock(folder: Path, name: str, wait: bool = False) -> Iterator[None]:
    """Raises BlockingIOError where another process holds it and `wait` is false."""
    file = _open(_path(folder, name))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(file)


def _open(path: Path) -> int:
    """Open for reading, which suffices to lock: in a sticky folder the kernel lets nobody create what another user owns."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        with suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        return os.open(path, flags)
    except OSError as error:
        raise EnvironmentFault(f"{path}: cannot be opened: {error.strerror}", "remove it if it is not kit's") from None


def _holder(folder: Path, name: str) -> str:
    """The process that holds a lock, as ``/proc/locks`` tells it."""
    with suppress(OSError, IndexError, ValueError):
        inode = str(_path(folder, name).stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].rsplit(":", 1)[-1] == inode:
                return f"another run (process {fields[4]})"
    return "another run"
