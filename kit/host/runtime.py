"""How a worker is run: what the supervisor needs to know of a container engine or of a plain process."""

from dataclasses import dataclass
from typing import Literal, Protocol

from kit.errors import ExitCode
from kit.events import Trouble
from kit.process import exit_reason


@dataclass(frozen=True)
class Ending:
    """How a worker ended: `trouble` is None after exit code 0; `left_behind` are processes that had to be ended after it."""

    trouble: Trouble | None
    reason: str
    left_behind: tuple[str, ...] = ()


def ending_of(code: int, who: str, left_behind: tuple[str, ...] = ()) -> Ending:
    """The ending that a return code stands for (negative: a signal, as in `subprocess`).

    A worker that exits with `ExitCode.ENVIRONMENT` could not write its events (`kit.worker`).
    """
    if code == ExitCode.ENVIRONMENT:
        return Ending(Trouble.ENVIRONMENT, f"{who}: the results folder could not be written to", left_behind)
    return Ending(Trouble.CRASHED if code else None, f"{who}: {exit_reason(code)}", left_behind)


class Runtime(Protocol):
    """One worker, started once. `stop` may be called at any time, more than once, and never leaves anything running."""

    @property
    def name(self) -> Literal["docker", "local"]:
        """Which kind it is."""

    def start(self) -> dict[str, str]:
        """Start the worker; gives facts about where it runs."""

    def ended(self) -> Ending | None:
        """How the worker ended; None while it runs."""

    def stop(self) -> tuple[str, ...]:
        """End the worker and all it started, keep its output, remove the container; gives what had been running."""
