"""What is said of a fault. Data only."""

from dataclasses import dataclass
from typing import Literal

Where = Literal[
    "adapter weights",
    "adapter metadata",
    "request routing",
    "cache",
    "batching",
    "decode step",
    "kernel arithmetic",
    "kernel indexing",
    "workspace",
    "text",
    "process",
    "container",
    "report",
]
"""Which part of a serving stack is at fault."""

ActsOn = Literal["adapters", "answers", "ranks", "kernels", "engine", "processes", "containers", "reports"]
"""How kit injects it: altered copies of adapters, altered answers (so the base model's too), the ranks of an all-reduce, the
sources and arguments of attention kernels, hooks in the engine's own processes, a session's process as a whole,
the container of a run, or its record."""


@dataclass(frozen=True)
class FaultKind:
    """One kind of fault.

    Attributes:
        effect: what is wrong with the subject while the fault is active.
        where: the part of a serving stack that is at fault.
        acts_on: how kit injects it.
        report: the public report that it stands for, as ``owner/repository#number``; None where it stands for none.
        strength_means: what the strength says; None where the fault has none.
        neutral: the strength that changes nothing; None where the fault has none.
        reported: the strength that the report tells, or one that is plainly a fault; None where the fault has none.
        neutral_is_infinite: the fault is the weaker the larger its strength is.
    """

    name: str
    effect: str
    where: Where
    acts_on: ActsOn
    report: str | None = None
    strength_means: str | None = None
    neutral: float | None = None
    reported: float | None = None
    neutral_is_infinite: bool = False

    @property
    def as_reported(self) -> str:
        """The text that injects it as reported, such as ``adapter-scaling=2``."""
        return self.name if self.reported is None else f"{self.name}={self.reported:g}"
