"""Shows how a run goes: a live line on a terminal, one line per case elsewhere. Nothing here can end a run."""

import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from kit.events import (
    AnyEvent,
    CaseFailedToRun,
    CaseFinished,
    CaseSkipped,
    CaseStarted,
    SessionEnded,
    SessionReady,
    SessionStarted,
)
from kit.plan import Plan


class SafeConsole(Console):
    """A console whose reader may go away: a closed pipe or terminal silences it, and nothing is raised."""

    def on_broken_pipe(self) -> None:
        """Say no more. Rich's own would end the process."""
        self.quiet = True


@contextlib.contextmanager
def unheard(console: Console) -> Iterator[None]:
    """What cannot be shown is not shown; afterwards the console is silent."""
    try:
        yield
    except (OSError, ValueError):
        console.quiet = True


class Progress:
    """Takes the events of a run as they come; verdicts come at the end."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._total = sum(case.skip is None for case in plan.cases)
        self._done = 0
        self._console = console
        self._start = time.monotonic()
        self._status = Status("", console=console) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._status:
            with unheard(self._console):
                self._status.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._status:
            with unheard(self._console):
                self._status.stop()

    def line(self, text: str) -> None:
        """Print a line that stays."""
        with unheard(self._console):
            self._console.print(
                f"[{time.monotonic() - self._start:6.1f} s] {text}", markup=False, highlight=False, soft_wrap=True
            )

    def event(self, event: AnyEvent) -> None:
        """Show one event."""
        match event:
            case SessionStarted():
                self._now(f"{event.session} starts")
                self.line(f"{event.session}: starting")
            case SessionReady():
                self.line(f"{event.session}: ready after {event.seconds:.1f} s")
            case CaseStarted():
                self._now(event.case)
            case CaseFinished():
                self._count(event.case, "measured" if all(m.within for m in event.measurements) else "outside a limit")
            case CaseSkipped():
                self._count(event.case, f"skipped: {event.reason}")
            case CaseFailedToRun():
                self._count(event.case, f"{event.trouble.value.upper()}: {event.reason}")
            case SessionEnded() if event.trouble is not None:
                self.line(f"{event.session}: {event.trouble.value.upper()}: {event.reason}")
            case _:
                pass

    def _count(self, case: str, outcome: str) -> None:
        self._done += 1
        self.line(f"{self._done}/{self._total} {case}: {outcome}")

    def _now(self, what: str) -> None:
        if self._status:
            with unheard(self._console):
                self._status.update(f"{self._done}/{self._total} {escape(what)}")
