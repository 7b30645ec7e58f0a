"""What a self-test found, from the result of its run: per fault whether it was caught, by which case, when, and how clearly."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from pydantic import Field

from kit.faults.catalogue import FAULTS, MARK, SWEEP, parse_fault
from kit.faults.kind import FaultKind
from kit.faults.process_catalogue import TELLING
from kit.measurement import Measurement, Record
from kit.results.model import CaseResult, RunResult, Status
from kit.selftest.sweep import SweepOutcome, sweep_outcome
from kit.selftest.upstream import Said, alarms_of, said_of

_CAUGHT = (Status.FAILED, Status.CRASHED, Status.TIMEOUT)
_GREEN = (Status.PASSED, Status.UNEXPECTED_PASS)


class Caught(Record):
    """A case that saw a fault.

    Attributes:
        case: its id, without the mark. status: of the case.
        seconds: from the start of the case to its verdict; None where the process died.
        measurement: that is furthest outside its limit; margin: its distance from the limit as a factor; None where it has none.
    """

    case: str
    status: str
    seconds: float | None
    measurement: str = ""
    margin: float | None = None


class FaultOutcome(Record):
    """One fault.

    Attributes:
        fault: as typed. name, effect, where, acts_on, report: of its kind.
        asked: cases that gave a verdict. missing: cases that gave none; of a launch, what of it is not as it must be.
        caught: those that were red, the clearest first.
        batteries: of the cases asked, and whether one of them saw it.
        upstream: what each of upstream's rules says of the same answers (`kit.selftest.upstream`); empty where there are none.
    """

    fault: str
    name: str
    effect: str
    where: str
    acts_on: str
    report: str | None
    asked: tuple[str, ...]
    missing: tuple[str, ...]
    caught: tuple[Caught, ...]
    batteries: dict[str, bool]
    upstream: dict[str, Said]

    @classmethod
    def of(
        cls,
        kind: FaultKind,
        *,
        text: str = "",
        asked: tuple[str, ...] = (),
        missing: tuple[str, ...] = (),
        caught: tuple[Caught, ...] = (),
        batteries: Mapping[str, bool] = MappingProxyType({}),
        upstream: Mapping[str, Said] = MappingProxyType({}),
    ) -> "FaultOutcome":
        """Of a fault of this kind; `text` is the fault as typed, else its name."""
        return cls(
            fault=text or kind.name,
            name=kind.name,
            effect=kind.effect,
            where=kind.where,
            acts_on=kind.acts_on,
            report=kind.report,
            asked=asked,
            missing=missing,
            caught=caught,
            batteries=dict(batteries),
            upstream=dict(upstream),
        )

    @property
    def verdict(self) -> Literal["caught", "not caught", "not asked"]:
        """What is said of it in a word."""
        if self.caught:
            return "caught"
        return "not caught" if self.asked else "not asked"


@dataclass(frozen=True)
class Beside:
    """What came of what is asked beside the plan of the run.

    Attributes:
        outcomes: one per fault. quiet: fault-free cases that were as they must be. alarms: what was not, a line each.
        left_out: by fault that cannot be asked about here, the reason. seconds: how long it took.
        stopped: before all was asked.
    """

    outcomes: tuple[FaultOutcome, ...] = ()
    quiet: int = 0
    alarms: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    stopped: bool = False


class SelftestResult(Record):
    """What ``selftest.json`` holds.

    Attributes:
        run_id, profile: of the run. seconds: how long it took.
        faults: in the order of the catalogue.
        rounds: without a fault, each over seeds of its own.
        quiet: fault-free cases that were green. alarms: those that were red, each with status and reason.
        unanswered: fault-free cases that gave no verdict.
        upstream_alarms: by upstream's rule, how many fault-free cases do not pass it, and how many it can judge.
        sweeps: the smallest strengths that were seen.
        left_out: by fault of the catalogue that cannot be asked about here, the reason.
        stopped: by a signal, before all was asked.
    """

    schema_version: Literal[3] = 3
    run_id: str
    profile: str
    seconds: float
    faults: tuple[FaultOutcome, ...]
    rounds: int = Field(ge=0)
    quiet: int = Field(ge=0)
    alarms: tuple[str, ...]
    unanswered: int = Field(ge=0)
    upstream_alarms: dict[str, tuple[int, int]]
    sweeps: tuple[SweepOutcome, ...] = ()
    left_out: dict[str, str] = Field(default_factory=dict)
    stopped: bool = False

    @property
    def good(self) -> bool:
        """Every fault that was to be asked about was caught, swept ones at their largest, and nothing was red without one."""
        seen = all(sweep.status in _GREEN for sweep in self.sweeps)
        quiet = not self.alarms and not self.unanswered
        return seen and quiet and not self.stopped and all(outcome.caught for outcome in self.faults)


_NOTHING: Final = Beside()


def outcome_of(result: RunResult, beside: Beside = _NOTHING) -> SelftestResult:
    """The self-test's result from that of its run, and from what was asked beside it."""
    by_fault: dict[str, list[CaseResult]] = {}
    without: list[CaseResult] = []
    sweeps: list[CaseResult] = []
    for case in result.cases:
        mark = case.id.partition(MARK)[2]
        if mark.isdecimal():
            without.append(case)
        elif mark.startswith(SWEEP):
            sweeps.append(case)
        else:
            by_fault.setdefault(mark, []).append(case)
    order = list(FAULTS)
    faults = sorted(by_fault, key=lambda text: (order.index(parse_fault(text).name), text))
    return SelftestResult(
        run_id=result.run_id,
        profile=result.profile.name,
        seconds=result.finished - result.started + beside.seconds,
        faults=(*(_fault_outcome(text, by_fault[text]) for text in faults), *beside.outcomes),
        rounds=len({case.id.partition(MARK)[2] for case in without if case.status in (*_CAUGHT, *_GREEN)}),
        quiet=sum(case.status in _GREEN for case in without) + beside.quiet,
        alarms=(*(f"{c.id}: {c.status.value}: {c.reason}" for c in without if c.status in _CAUGHT), *beside.alarms),
        unanswered=sum(case.status not in (*_CAUGHT, *_GREEN) for case in without),
        upstream_alarms=alarms_of(without),
        sweeps=tuple(map(sweep_outcome, sweeps)),
        left_out=dict(beside.left_out),
        stopped=result.interrupted or beside.stopped,
    )


def _fault_outcome(text: str, cases: list[CaseResult]) -> FaultOutcome:
    kind = FAULTS[parse_fault(text).name]
    telling = (Status(TELLING[kind.name]),) if kind.name in TELLING else _CAUGHT
    asked = [case for case in cases if case.status in (*_CAUGHT, *_GREEN)]
    seen = [case for case in asked if case.status in telling]
    caught = sorted((_caught(case) for case in seen), key=lambda c: c.margin or 0.0)
    red = {case.battery for case in seen}
    return FaultOutcome.of(
        kind,
        text=text,
        asked=tuple(_plain(case) for case in asked),
        missing=tuple(f"{_plain(case)}: {case.status.value}" for case in cases if case not in asked),
        caught=tuple(caught),
        batteries={case.battery: case.battery in red for case in asked},
        upstream=said_of(asked),
    )


def _caught(case: CaseResult) -> Caught:
    worst = next(_outside(case.measurements), None)
    return Caught(
        case=_plain(case),
        status=case.status.value,
        seconds=case.seconds,
        measurement=worst.name if worst else "",
        margin=worst.margin if worst else None,
    )


def _outside(measurements: tuple[Measurement, ...]) -> Iterator[Measurement]:
    red = [measurement for measurement in measurements if not measurement.within]
    yield from sorted(red, key=lambda m: 1.0 if m.margin is None else m.margin)


def _plain(case: CaseResult) -> str:
    return case.id.partition(MARK)[0]
