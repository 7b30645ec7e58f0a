"""The result of one run: the versioned model behind ``result.json``, of which every report is a projection."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator
from pydantic_core import PydanticSerializationError

from kit.errors import ExitCode, UsageFault
from kit.events import Trouble
from kit.measurement import Measurement, Record, worst
from kit.plan import InjectedFault
from kit.results.text import printable
from kit.waiver import Waiver

RESULT_SCHEMA: Final = 1


class Mode(StrEnum):
    """How strict a run is: `ci` honours waivers and warns, `qualify` refuses every gap."""

    CI = "ci"
    QUALIFY = "qualify"


class Status(StrEnum):
    """What became of a planned case (docs/architecture.md, "Verdicts")."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    MISSING = "missing"
    ENVIRONMENT = "environment"
    SKIPPED = "skipped"
    WAIVED = "waived"
    UNEXPECTED_PASS = "unexpected-pass"


class CaseResult(Record):
    """What became of one planned case.

    Attributes:
        session: id of the session that had to answer it.
        reason: one line on why it did not pass; empty for a pass.
        measurements: as the session reported them; empty where it reported none.
        evidence: as the session reported it.
        started: seconds since the epoch (UTC); None if it never started.
        seconds: how long it took; None if that is not known.
        waiver: id of the waiver that covers it, or that did until it expired (`RunResult.waivers`).
    """

    id: str
    battery: str
    session: str
    status: Status
    reason: str = ""
    measurements: tuple[Measurement, ...] = ()
    evidence: dict[str, JsonValue] = Field(default_factory=dict)
    started: float | None = None
    seconds: float | None = None
    waiver: str | None = None

    @property
    def worst(self) -> Measurement | None:
        """The judged measurement that is furthest outside its limit, or nearest to it; None where none was judged."""
        return worst(self.measurements)


class SessionResult(Record):
    """What became of one planned session.

    Attributes:
        ended: whether its end was reported.
        trouble: why it ended; None after a clean end, or where its end was not reported.
        reason: exit code, signal or limit, in one line.
        ready_seconds: how long it took until it could answer; None if it never could.
        facts: versions, devices and stand-ins, as it saw them.
        log: its log, relative to the results folder.
        log_tail: the last lines of its log, if it ended in trouble.
    """

    id: str
    ended: bool
    trouble: Trouble | None = None
    reason: str = ""
    ready_seconds: float | None = None
    facts: dict[str, str] = Field(default_factory=dict)
    log: str
    log_tail: str = ""


class ProfileFacts(Record):
    """The profile, as far as a report needs it (`kit.profile.Profile`)."""

    name: str
    title: str
    vendor: str
    architecture: str
    gpus: int
    image: str
    mandatory: tuple[str, ...]


_ORDER = (ExitCode.INCOMPLETE, ExitCode.IMAGE, ExitCode.ENVIRONMENT, ExitCode.NOT_CONFORMING)


def _red(code: ExitCode) -> ExitCode:
    if code not in _ORDER:
        raise ValueError("a problem is incomplete, image, environment or not conforming")
    return code


class Problem(Record):
    """Why the run is red whatever its cases say: the exit code that it asks for, and one line."""

    exit_code: Annotated[ExitCode, AfterValidator(_red)]
    text: str


_CODE_OF_STATUS = {
    Status.FAILED: ExitCode.NOT_CONFORMING,
    Status.ENVIRONMENT: ExitCode.ENVIRONMENT,
    Status.CRASHED: ExitCode.INCOMPLETE,
    Status.TIMEOUT: ExitCode.INCOMPLETE,
    Status.MISSING: ExitCode.INCOMPLETE,
}


def exit_code_of(mode: Mode, cases: Sequence[CaseResult], problems: Sequence[Problem], interrupted: bool) -> ExitCode:
    """The exit code of a run: the first that applies of interrupted, incomplete, image, environment, not
    conforming, conforms.

    The less a run can say, the earlier its code: a stopped run says nothing; a failure beside a crash may be its
    consequence, so a crash is told first; and a machine that was not fit puts the failures seen on it in doubt. Nothing
    is lost by this order, since every report lists every case. A run in which no case was run (none planned, or all
    skipped) is incomplete, never a pass.
    """
    if interrupted:
        return ExitCode.INTERRUPTED
    codes = {problem.exit_code for problem in problems}
    codes |= {_CODE_OF_STATUS[case.status] for case in cases if case.status in _CODE_OF_STATUS}
    if mode is Mode.QUALIFY and any(case.status is Status.UNEXPECTED_PASS for case in cases):
        codes.add(ExitCode.NOT_CONFORMING)
    if all(case.status is Status.SKIPPED for case in cases):
        codes.add(ExitCode.INCOMPLETE)
    return next((code for code in _ORDER if code in codes), ExitCode.CONFORMS)


LAST_INSTANT: Final = 253_402_300_799.0
Instant = Annotated[float, Field(ge=0, le=LAST_INSTANT)]
"""Seconds since the epoch (UTC), up to the end of the year 9999, which every calendar can show."""


class RunResult(Record):
    """One run, complete: every planned case is in `cases`, in the order of the plan.

    Attributes:
        runtime: what ran the worker; None where nothing was started.
        omitted: how many cases of the profile were not planned, since a selection left them out.
        image, host, worker: facts about the image, about the runtime and its machine, and as seen by the worker.
        does_not_prove: what a green run of this profile leaves open.
        faults: deliberate faults; where there is one, the run says nothing about the hardware.
        waivers: those that had a say in this run, expired ones included.
        problems: what makes the run red beside its cases.
        warnings: what a reader must know and what makes nothing red.
        damaged_lines: lines of the event streams that were no event.
        started, finished: seconds since the epoch (UTC).
        exit_code: follows from mode, cases, problems and interrupted (`exit_code_of`), else the file is refused.
    """

    schema_version: Literal[1] = RESULT_SCHEMA
    kit_version: str
    run_id: str
    profile: ProfileFacts
    mode: Mode
    runtime: Literal["docker", "local"] | None
    image: dict[str, str] = Field(default_factory=dict)
    host: dict[str, str] = Field(default_factory=dict)
    worker: dict[str, str] = Field(default_factory=dict)
    does_not_prove: tuple[str, ...] = ()
    faults: tuple[InjectedFault, ...] = ()
    sessions: tuple[SessionResult, ...] = ()
    cases: tuple[CaseResult, ...]
    omitted: int = Field(default=0, ge=0)
    waivers: tuple[Waiver, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    damaged_lines: int = Field(default=0, ge=0)
    started: Instant
    finished: Instant
    interrupted: bool = False
    exit_code: ExitCode

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        expected = exit_code_of(self.mode, self.cases, self.problems, self.interrupted)
        if self.exit_code is not expected:
            raise ValueError(f"exit_code is {self.exit_code:d}, but the cases and problems give {expected:d}")
        return self

    @property
    def part(self) -> str:
        """``2 of 15 cases`` where a selection left cases out, else empty."""
        return f"{len(self.cases):,} of {len(self.cases) + self.omitted:,} cases" if self.omitted else ""

    @property
    def counts(self) -> Counter[Status]:
        """How many cases have each status."""
        return Counter(case.status for case in self.cases)

    def to_json(self) -> bytes:
        """As UTF-8 JSON; what UTF-8 cannot hold (lone surrogates in file names and logs) is written as its escape."""
        try:
            return self.model_dump_json(indent=2).encode() + b"\n"
        except PydanticSerializationError:
            return RunResult.model_validate(_without_surrogates(self.model_dump())).to_json()


def _without_surrogates(value: object) -> object:
    match value:
        case StrEnum():
            return value
        case str():
            return printable(value)
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
        case _:
            return value


def log_file(session_id: str) -> str:
    """The log of a session, relative to the results folder."""
    return f"logs/{session_id}.log"


def load_result(path: Path) -> RunResult:
    """Read a ``result.json``.

    Raises:
        UsageFault: it cannot be read, is damaged, or its exit code does not follow from its cases.
    """
    try:
        return RunResult.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageFault(f"{path}: cannot be read: {error.strerror}", "name the result.json of a run") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageFault(
            f"{path}: not a result of kit: {key}: {first['msg']}", "name the result.json of a run"
        ) from None
