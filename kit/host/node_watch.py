"""The GPUs of a run before and after it: processes and memory that the run left there."""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence

import psutil

from kit.errors import EnvironmentFault
from kit.host.gpu import Gpu

_MORE_BYTES = 512 * 2**20
"""Less than any engine holds; a driver keeps some memory of its own after its first use."""
_SECONDS = 10.0
_POLL_SECONDS = 0.5


class NodeWatch:
    """Remembers the state of some GPUs, and tells what is there later that was not there at first.

    Args:
        read: gives all GPUs of the machine, as `kit.host.devices.host_gpus` does.
        before: the GPUs to watch, as they are now.
    """

    def __init__(self, read: Callable[[], Sequence[Gpu]], before: Iterable[Gpu]) -> None:
        self._read = read
        self._before = {gpu.unique_id: gpu for gpu in before}

    def left(self, seconds: float = _SECONDS) -> tuple[str, ...]:
        """What the run left, one line each. A driver needs a moment to take back what a process had, so it is asked until then."""
        if not self._before:
            return ()
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = tuple(self._differences())
            except EnvironmentFault as fault:
                return (f"the GPUs cannot be looked at: {fault.problem}",)
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(_POLL_SECONDS)

    def _differences(self) -> Iterable[str]:
        now = {gpu.unique_id: gpu for gpu in self._read()}
        for name, before in self._before.items():
            after = now.get(name)
            if after is None:
                yield f"GPU {before.index} ({name}) is gone: the driver no longer tells of it"
                continue
            for pid in sorted(set(after.busy_pids) - set(before.busy_pids)):
                yield f"process {pid}{_name_of(pid)} on GPU {after.index}"
            if (more := after.used - before.used) > _MORE_BYTES:
                yield f"{more / 2**30:.1f} GiB more memory in use on GPU {after.index} than before"


def _name_of(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return f" {psutil.Process(pid).name()}"
    return ""
