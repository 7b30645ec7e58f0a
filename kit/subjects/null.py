"""The null subject: computes nothing, and ends in every way a real one can. No battery plans it; it is for rehearsals."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from kit.plan import NullSession


@dataclass(frozen=True)
class NullSubject:
    """A subject without substance."""

    facts: dict[str, str]

    def die(self) -> None:
        """End this process as a crash would, without a last word."""
        os.kill(os.getpid(), signal.SIGKILL)

    def leave(self) -> None:
        """End this process with exit code 0, in the middle of its work."""
        os._exit(0)

    def hang(self) -> None:
        """Never come back, and take no notice of SIGTERM."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(3600)

    def orphan(self) -> int:
        """Start a process in a session of its own that would outlive this one; gives its pid."""
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True).pid

    def make_noise(self) -> None:
        """Write bytes that are no text to standard output, and rubbish to every pipe that this process has open."""
        os.write(1, b"\xff\xfe\x00noise\n" * 1000)
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are needed, not paths
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith("pipe:") and int(name) > 2:  # noqa: PTH115
                    os.write(int(name), b'{"event": "case-finished", "verdict": "passed"}\n\xff\xfe\n')

    def flood(self) -> None:
        """Write 96 MiB of bytes that are no text to standard output, without one line end."""
        for number in range(96):
            os.write(1, bytes([number, 0xFF]) * 2**19)

    def take_memory(self) -> None:
        """Take memory, 64 MiB at a time, until something stops it."""
        held = []
        while True:
            held.append(b"\x01" * (64 * 2**20))


@contextlib.contextmanager
def open_null(spec: NullSession) -> Iterator[NullSubject]:
    """A null subject; it may abort in closing, as a corrupted heap does."""
    time.sleep(spec.start_seconds)
    yield NullSubject(facts={"architecture": spec.architecture or platform.machine()})
    if spec.abort_at_end:
        os.abort()
