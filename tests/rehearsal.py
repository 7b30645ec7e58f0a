"""Runs plans of the null subject through the real host and worker sides."""

import datetime
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kit.check_spec import NullCheck
from kit.events import AnyEvent, parse_lines
from kit.host.runtime import Runtime
from kit.host.supervisor import Observed, StopRequest, supervise
from kit.plan import Case, NullSession, Plan, Session
from kit.profile import find_profile
from kit.results.model import CaseResult, Mode, RunResult
from kit.results.verdict import judge
from kit.waiver import Waivers


def null_plan(
    *sessions: list[NullCheck],
    spec: NullSession = NullSession(),  # noqa: B008 - frozen
    start: float = 20,
    case: float = 5,
    run: float = 60,
    architecture: str = platform.machine(),
) -> Plan:
    """A plan with one session per list of acts; case ids are ``kernels/null-<session>/<number>-<act>``."""
    return Plan(
        run_id="rehearsal",
        profile="cpu",
        architecture=architecture,
        sessions=tuple(
            Session(id=f"null-{i}", spec=spec, start_seconds=start, case_seconds=case) for i in range(len(sessions))
        ),
        cases=tuple(
            Case(id=f"kernels/null-{i}/{j}-{check.act}", session=f"null-{i}", spec=check)
            for i, checks in enumerate(sessions)
            for j, check in enumerate(checks)
        ),
        run_seconds=run,
    )


@dataclass
class Rehearsal:
    """What came out: the result, and status and reason by case id."""

    result: RunResult
    seen: Observed
    cases: dict[str, CaseResult] = field(init=False)

    def __post_init__(self) -> None:
        self.cases = {case.id: case for case in self.result.cases}

    @property
    def statuses(self) -> dict[str, str]:
        """Case aspect (last part of the id, with the session) to status."""
        return {case.id.removeprefix("kernels/null-"): case.status.value for case in self.result.cases}


def rehearse(
    plan: Plan,
    runtime: Runtime,
    folder: Path,
    stop: StopRequest | None = None,
    on_event: Callable[[AnyEvent], None] = lambda event: None,
) -> Rehearsal:
    """Supervise the plan and judge what was seen; the files must tell the same, since `kit verify` judges by them."""
    seen = Observed()
    started = time.time()
    supervise(plan, runtime, folder, stop or StopRequest(), on_event, seen)
    assert told_in(folder / "events.jsonl") == (as_text(seen.worker), seen.damaged)
    assert told_in(folder / "host.jsonl") == (as_text(seen.host), 0)
    result = judge(
        plan,
        find_profile("cpu"),
        mode=Mode.CI,
        worker_events=seen.worker,
        host_events=seen.host,
        waivers=Waivers(),
        today=datetime.date(2026, 11, 30),
        started=started,
        finished=time.time(),
        damaged=seen.damaged,
    )
    assert [case.id for case in result.cases] == [case.id for case in plan.cases]
    return Rehearsal(result, seen)


def told_in(path: Path) -> tuple[list[str], int]:
    """The events of a file, and how many lines of it were none."""
    events, damaged = parse_lines(path.read_bytes().split(b"\n") if path.exists() else [])
    return as_text(events), damaged


def as_text(events: list[AnyEvent]) -> list[str]:
    """Events in a form in which NaN is equal to NaN."""
    return [event.model_dump_json() for event in events]


def write_plan(plan: Plan, folder: Path) -> Path:
    """The results folder of a plan, as a run makes it."""
    (folder / "logs").mkdir(parents=True)
    (folder / "plan.json").write_text(plan.model_dump_json())
    return folder
