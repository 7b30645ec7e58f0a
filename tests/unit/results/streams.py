"""Plans and event streams for tests of the results: short to write, and with the shape that a real run has."""

from collections.abc import Iterable, Sequence
from datetime import date

from kit.check_spec import NullCheck
from kit.events import (
    AnyEvent,
    CaseFinished,
    CaseSkipped,
    CaseStarted,
    RuntimeEnded,
    RuntimeStarted,
    SessionEnded,
    SessionReady,
    SessionStarted,
    Trouble,
    WorkerFinished,
    WorkerStarted,
)
from kit.measurement import Comparison, LimitSource, Measurement
from kit.plan import Case, InjectedFault, NullSession, Plan, Session
from kit.profile import Profile, find_profile
from kit.results.model import CaseResult, Mode, RunResult
from kit.results.verdict import judge
from kit.waiver import Waiver, Waivers

TODAY = date(2026, 12, 1)
RUN_ID = "20261201-120000-abcdef"
LORA, MIXED, KERNEL = "lora-logprob/tiny/adapter-1", "multi-lora/tiny/row-0", "kernels/triton/shape-1"
RUNTIME_STARTED = RuntimeStarted(runtime="docker", facts={"hostname": "lab-7"})
GOOD_END = RuntimeEnded(trouble=None, reason="exit code 0")


def profile() -> Profile:
    return find_profile("cpu")


def plan(sessions: dict[str, Sequence[str]], skips: dict[str, str] | None = None, faults: tuple[str, ...] = ()) -> Plan:
    """A plan of null sessions with these cases; `skips` says why a case does not apply."""
    return Plan(
        run_id=RUN_ID,
        profile="cpu",
        architecture="x86_64",
        sessions=tuple(Session(id=s, spec=NullSession(), start_seconds=9, case_seconds=9) for s in sessions),
        cases=tuple(
            Case(id=c, session=s, spec=NullCheck(act="pass"), skip=(skips or {}).get(c))
            for s, ids in sessions.items()
            for c in ids
        ),
        faults=tuple(InjectedFault(name=name, strength=1.1) for name in faults),
        run_seconds=99,
    )


def error_of(value: float, limit: float = 1.0) -> Measurement:
    """An error that must be at most `limit`."""
    return Measurement(
        name="max_abs_error",
        value=value,
        unit="nat",
        comparison=Comparison.AT_MOST,
        limit=limit,
        source=LimitSource.PEER,
    )


def finished(session: str, case: str, *values: float) -> CaseFinished:
    measurements = tuple(error_of(value) for value in values)
    return CaseFinished(session=session, case=case, seconds=1.5, measurements=measurements)


def case_events(session: str, case: str, *values: float) -> list[AnyEvent]:
    return [CaseStarted(session=session, case=case), finished(session, case, *values)]


def skipped_events(session: str, case: str, reason: str) -> list[AnyEvent]:
    return [CaseStarted(session=session, case=case), CaseSkipped(session=session, case=case, reason=reason)]


def session_events(session: str, *cases: Iterable[AnyEvent], end: SessionEnded | None = None) -> list[AnyEvent]:
    """A session from its start to its end, by default a clean one."""
    ready = SessionReady(session=session, seconds=2.0, facts={"device": "null"})
    body = [event for case in cases for event in case]
    return [SessionStarted(session=session, pid=2), ready, *body, end or clean_end(session)]


def clean_end(session: str) -> SessionEnded:
    return SessionEnded(session=session, trouble=None, reason="exit code 0")


def death(session: str, reason: str = "SIGKILL", trouble: Trouble = Trouble.CRASHED) -> SessionEnded:
    return SessionEnded(session=session, trouble=trouble, reason=reason, log_tail="last words")


def worker(*sessions: Iterable[AnyEvent], done: bool = True) -> list[AnyEvent]:
    """A worker's whole stream."""
    body = [event for session in sessions for event in session]
    end: list[AnyEvent] = [WorkerFinished()] if done else []
    return [WorkerStarted(run_id=RUN_ID, pid=1, facts={"python": "3.12.1"}), *body, *end]


def waiver(case: str = KERNEL, opened: date = date(2026, 11, 30), expires: date = date(2027, 1, 31)) -> Waiver:
    return Waiver(
        id="known-fault",
        case=case,
        architecture="x86_64",
        reason="a fault that is known and tracked",
        link="https://example.org/issues/1",
        opened=opened,
        expires=expires,
    )


def judged(
    planned: Plan,
    events: Iterable[AnyEvent],
    *,
    host: Sequence[AnyEvent] = (RUNTIME_STARTED, GOOD_END),
    mode: Mode = Mode.CI,
    waivers: Sequence[Waiver] = (),
    today: date = TODAY,
    damaged: int = 0,
) -> RunResult:
    """The result; it is complete whatever the events are."""
    result = judge(
        planned,
        profile(),
        mode=mode,
        worker_events=list(events),
        host_events=host,
        waivers=Waivers(waiver=tuple(waivers)),
        today=today,
        started=1_796_000_000.0,
        finished=1_796_000_060.0,
        damaged=damaged,
    )
    assert [case.id for case in result.cases] == [case.id for case in planned.cases]
    return result


def one_case(
    *values: float, mode: Mode = Mode.CI, waivers: Sequence[Waiver] = (), today: date = TODAY
) -> tuple[CaseResult, RunResult]:
    """A clean run of one case with these errors against a limit of 1."""
    result = judged(
        plan({"s": [KERNEL]}),
        worker(session_events("s", case_events("s", KERNEL, *values))),
        mode=mode,
        waivers=waivers,
        today=today,
    )
    return result.cases[0], result


ALL_THREE = {"s": [LORA, MIXED, KERNEL]}


def statuses(result: RunResult) -> list[str]:
    return [case.status.value for case in result.cases]


def texts(result: RunResult) -> str:
    return "\n".join(problem.text for problem in result.problems)
