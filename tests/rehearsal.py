"""Runs plans of the null subject through the real host and worker sides."""

import datetime
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kit.events import AnyEvent
from kit.host.runtime import Runtime
from kit.host.supervisor import Observed, StopRequest, supervise
from kit.plan import Case, NullCheck, NullSession, Plan, Session
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
    """Supervise the plan and judge what was seen."""
    seen = Observed()
    started = time.time()
    supervise(plan, runtime, folder, stop or StopRequest(), on_event, seen)
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


def write_plan(plan: Plan, folder: Path) -> Path:
    """The results folder of a plan, as a run makes it."""
    (folder / "logs").mkdir(parents=True)
    (folder / "plan.json").write_text(plan.model_dump_json())
    return folder
