"""How a worker is run: what the supervisor needs to know of a container engine or of a plain process."""

from dataclasses import dataclass
from typing import Literal, Protocol

from kit.events import Trouble


@dataclass(frozen=True)
class Ending:
    """How a worker ended: `trouble` is None after exit code 0; `left_behind` are processes that had to be ended after it."""

    trouble: Trouble | None
    reason: str
    left_behind: tuple[str, ...] = ()


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
