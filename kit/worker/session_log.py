"""What a session prints, of any size and any bytes, in a log of bounded size: its beginning, and its end."""

import contextlib
import os
import threading
from pathlib import Path

_MOST_BYTES = 32 * 1024 * 1024
_TAIL_BYTES = 256 * 1024
_CHUNK_BYTES = 65_536
_END_SECONDS = 10.0


class SessionLog:
    """Takes all that is written to `fd` at once, so that no session waits for a disk; a full disk only shortens the log.

    What is beyond `most` bytes is left out, but for the last `tail`; a line in the log says how much that is.
    """

    def __init__(self, path: Path, most: int = _MOST_BYTES, tail: int = _TAIL_BYTES) -> None:
        self._most, self._tail_bytes = most, tail
        self._file = path.open("wb", buffering=0)
        self._read_fd, self.fd = os.pipe()
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def started(self) -> None:
        """The session holds its own end of the pipe now, so that ours need not stay open."""
        os.close(self.fd)

    def close(self) -> None:
        """Wait until everyone who could write is gone, and finish the log."""
        self._thread.join(_END_SECONDS)

    def _take(self) -> None:
        written = left_out = 0
        tail = b""
        while chunk := os.read(self._read_fd, _CHUNK_BYTES):
            head = chunk[: max(0, self._most - written)]
            self._write(head)
            written += len(head)
            rest = chunk[len(head) :]
            left_out += len(rest)
            tail = (tail + rest)[-self._tail_bytes :]
        if left_out > len(tail):
            self._write(f"\n[kit: {left_out - len(tail)} bytes are left out here]\n".encode())
        self._write(tail)
        os.close(self._read_fd)
        with contextlib.suppress(OSError):
            self._file.close()

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            while data:
                data = data[self._file.write(data) or 0 :]
