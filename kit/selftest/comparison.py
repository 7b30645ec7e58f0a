"""Caught by upstream's rules, caught by kit: counted by the part of a serving stack that is at fault."""

from collections.abc import Sequence
from dataclasses import dataclass

from kit.selftest.outcome import FaultOutcome, SelftestResult
from kit.selftest.upstream import RULES, Said, together

TOTAL = "all"


@dataclass(frozen=True)
class Compared:
    """Faults of one kind.

    Attributes:
        where: the part of a serving stack, or `TOTAL`. faults: how many gave a verdict. kit: how many kit caught.
        rules: by rule, how many it caught and how many it could judge. upstream: the same of all rules together.
    """

    where: str
    faults: int
    kit: int
    rules: dict[str, tuple[int, int]]
    upstream: tuple[int, int]

    @property
    def cells(self) -> list[str]:
        """What a table says: `caught / judged`, empty where a rule can judge none."""
        return [share(pair) for pair in (*self.rules.values(), self.upstream)]


def comparison(result: SelftestResult) -> list[Compared]:
    """A row for each part of a serving stack that has a fault, and one for all."""
    asked = [outcome for outcome in result.faults if outcome.asked]
    parts = dict.fromkeys(outcome.where for outcome in asked)
    rows = [_row(where, [o for o in asked if o.where == where]) for where in parts]
    return [*rows, _row(TOTAL, asked)]


def _row(where: str, outcomes: Sequence[FaultOutcome]) -> Compared:
    return Compared(
        where=where,
        faults=len(outcomes),
        kit=sum(bool(outcome.caught) for outcome in outcomes),
        rules={r.name: _counted([o.upstream.get(r.name, "cannot judge") for o in outcomes]) for r in RULES},
        upstream=_counted([together(outcome.upstream.values()) for outcome in outcomes]),
    )


def _counted(said: Sequence[Said]) -> tuple[int, int]:
    return said.count("caught"), len(said) - said.count("cannot judge")


def share(pair: tuple[int, int]) -> str:
    """What a table says of how many of how many; empty where there are none."""
    caught, judged = pair
    return f"{caught} / {judged}" if judged else ""
