"""Ties the life of processes together (Linux), so that none outlives a run."""

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent `parent` (a pid) dies, and end at once where it already has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that `end_descendants` finds it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_descendants(seconds: float = 10.0) -> tuple[str, ...]:
    """Kill every descendant of this process until none is left; gives "pid name" of those that were still running.

    Processes in uninterruptible sleep that do not go within `seconds` are named with "(unkillable)".
    """
    ended: dict[int, str] = {}
    deadline = time.monotonic() + seconds
    me = psutil.Process()
    while True:
        alive = [child for child in me.children(recursive=True) if not _reaped(child)]
        if not alive:
            return tuple(ended.values())
        for child in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                ended.setdefault(child.pid, f"{child.pid} {child.name()}")
                child.kill()
        if time.monotonic() > deadline:
            return tuple(
                f"{text} (unkillable)" if pid in {c.pid for c in alive} else text for pid, text in ended.items()
            )
        time.sleep(0.05)


def _reaped(child: psutil.Process) -> bool:
    """Whether a child is gone; a zombie of our own is waited for."""
    try:
        if child.status() != psutil.STATUS_ZOMBIE:
            return False
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child.pid, os.WNOHANG)
    except psutil.NoSuchProcess:
        pass
    return True


def exit_reason(returncode: int) -> str:
    """An exit in words: ``exit code 1`` or ``killed by SIGKILL``, from a `subprocess` return code."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


MEMORY_EVENTS = (
    Path("/sys/fs/cgroup/memory.events"),  # cgroup v2
    Path("/sys/fs/cgroup/memory/memory.oom_control"),  # cgroup v1
)


def memory_kills(files: tuple[Path, ...] = MEMORY_EVENTS) -> int:
    """How often the kernel killed a process of this control group for memory; 0 where that is not told."""
    for file in files:
        with contextlib.suppress(OSError):
            lines = file.read_text().splitlines()
            return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return 0
