"""Shows how assets are checked and fetched: bars on a terminal, lines elsewhere."""

import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from kit.asset import PinnedFile


def size_text(size: int) -> str:
    """Bytes for a person: ``16.4 GB``."""
    return decimal(size)


class Transfer:
    """One bar for the whole, and one for each file that is worked on. Takes calls from several threads."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._files: dict[str, TaskID] = {}
        self._whole: TaskID | None = None
        self._what = ""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def line(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stage(self, what: str, size: int) -> None:
        """Begin the bar of the whole."""
        if self._whole is not None:
            self._progress.remove_task(self._whole)
        self._what = what
        self._whole = self._progress.add_task(what, total=size)

    def begin(self, file: PinnedFile, done: int) -> None:
        """Begin a file's bar."""
        with self._lock:
            self._files[file.path] = self._progress.add_task(escape(file.path), total=file.size, completed=done)
            self._count(done)

    def advance(self, file: PinnedFile, count: int) -> None:
        """Move both bars."""
        with self._lock:
            self._progress.advance(self._files[file.path], count)
            self._count(count)

    def end(self, file: PinnedFile) -> None:
        """Take a file's bar away; a fetched file leaves a line where there are no bars."""
        with self._lock:
            self._progress.remove_task(self._files.pop(file.path))
        if self._what == "fetching" and not self._console.is_terminal:
            self.line(f"fetched {file.path}: {size_text(file.size)}")

    def _count(self, count: int) -> None:
        if self._whole is not None:
            self._progress.advance(self._whole, count)
