"""Whose container is it, and does that kit still live: what is written on every container, and how it is read."""

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from kit.measurement import Record

_STARTTIME = 22  # proc(5), /proc/PID/stat, counted from 1; what follows the name begins with field 3


class Owner(Record):
    """One process of kit, such that no other has the same.

    Attributes:
        user: effective user id. machine: name and machine-id, as far as there is one. boot: the kernel's random boot id.
        namespace: the process-id namespace in which `pid` counts.
        start: clock ticks from the boot to the start of the process: a pid is used again, the pair is not.
    """

    user: int
    machine: str
    boot: str
    namespace: str
    pid: int
    start: int

    @classmethod
    def myself(cls) -> Self:
        """This process."""
        pid = os.getpid()
        return cls(
            user=os.geteuid(),
            machine=f"{platform.node()} {_read('/etc/machine-id')}".strip(),
            boot=_read("/proc/sys/kernel/random/boot_id"),
            namespace=os.readlink("/proc/self/ns/pid"),  # noqa: PTH115 - not a path
            pid=pid,
            start=_start_of(pid) or 0,
        )

    @classmethod
    def read(cls, label: str) -> Self | None:
        """From a container's label; None where it is none of kit's."""
        try:
            return cls.model_validate_json(label)
        except ValidationError:
            return None

    @property
    def label(self) -> str:
        """As it is written on a container."""
        return self.model_dump_json()

    def gone(self, me: "Owner") -> bool | None:
        """Whether that process has ended, as far as the process `me` can know; None where it cannot.

        The same machine under another boot id was restarted. On the same boot and in the same namespace, a pid with another
        start, or with none, is another process, or none. What is on another machine, or in another container, cannot be seen.
        """
        if self.boot != me.boot:
            return True if self.machine == me.machine else None
        if self.namespace != me.namespace:
            return None
        return _start_of(self.pid) != self.start


def _start_of(pid: int) -> int | None:
    """Start of a process in clock ticks after the boot; None where there is none, or only a zombie."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[_STARTTIME - 3])
    return None


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip()
    return ""
