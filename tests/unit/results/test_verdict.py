"""The verdict table of docs/architecture.md, row by row, and what makes a run red beside its cases."""

import math

import pytest

from kit.errors import ExitCode
from kit.events import (
    AnyEvent,
    CaseFailedToRun,
    CaseFinished,
    CaseStarted,
    RuntimeEnded,
    SessionReady,
    SessionStarted,
    Trouble,
    WorkerFinished,
    WorkerStarted,
)
from kit.measurement import Comparison, LimitSource, Measurement
from kit.results.model import Mode, Status
from tests.unit.results.streams import (
    ALL_THREE,
    GOOD_END,
    KERNEL,
    LORA,
    MIXED,
    RUN_ID,
    RUNTIME_STARTED,
    case_events,
    clean_end,
    death,
    error_of,
    finished,
    judged,
    one_case,
    plan,
    session_events,
    skipped_events,
    statuses,
    texts,
    waiver,
    worker,
)

# Rows of the table that one measured case shows.


@pytest.mark.parametrize("values", [(0.5,), (1.0,), (0.0, 0.999)])
def test_passed_when_every_measurement_is_within_its_limit(values: tuple[float, ...]) -> None:
    case, result = one_case(*values)
    assert (case.status, case.reason) == (Status.PASSED, "")
    assert result.exit_code == ExitCode.CONFORMS
    assert result.problems == result.warnings == ()


@pytest.mark.parametrize("bad", [1.0000001, math.inf, math.nan])
def test_failed_when_one_measurement_is_outside_or_nan(bad: float) -> None:
    case, result = one_case(0.1, bad, 0.2)
    assert case.status is Status.FAILED
    assert "max_abs_error" in case.reason and "<= 1 (peer)" in case.reason
    assert result.exit_code == ExitCode.NOT_CONFORMING


def test_context_is_never_judged() -> None:
    context = Measurement(name="peer_error", value=math.nan)
    event = CaseFinished(session="s", case=KERNEL, seconds=1, measurements=(context, error_of(0.5)))
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", [CaseStarted(session="s", case=KERNEL), event])))
    assert statuses(result) == ["passed"]
    assert result.cases[0].worst == error_of(0.5)


@pytest.mark.parametrize("measurements", [(), (Measurement(name="context", value=1.0),)])
def test_a_case_that_judged_nothing_did_not_pass(measurements: tuple[Measurement, ...]) -> None:
    event = CaseFinished(session="s", case=KERNEL, seconds=1, measurements=measurements)
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", [CaseStarted(session="s", case=KERNEL), event])))
    assert statuses(result) == ["missing"]
    assert "nothing was judged" in result.cases[0].reason
    assert result.exit_code == ExitCode.INCOMPLETE


def test_a_limit_without_bound_is_no_limit() -> None:
    event = CaseFinished(session="s", case=KERNEL, seconds=1, measurements=(error_of(math.inf, limit=math.inf),))
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", [CaseStarted(session="s", case=KERNEL), event])))
    assert statuses(result) == ["failed"]
    assert "infinite" in result.cases[0].reason


def test_the_worst_measurement_decides_what_is_shown() -> None:
    exact = Measurement(
        name="differing", value=3, unit="count", comparison=Comparison.EQUAL, limit=0, source=LimitSource.EXACT
    )
    far_out, inside = error_of(50.0), error_of(0.9)
    event = CaseFinished(session="s", case=KERNEL, seconds=1, measurements=(inside, far_out, exact))
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", [CaseStarted(session="s", case=KERNEL), event])))
    assert result.cases[0].worst == exact
    assert result.cases[0].reason.startswith("differing = 3 count, limit == 0 (exact)")


def test_what_is_outside_is_worse_than_what_is_inside_whatever_its_margin() -> None:
    inside, outside = error_of(-1.0), error_of(2.0)
    event = CaseFinished(session="s", case=KERNEL, seconds=1, measurements=(inside, outside))
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", [CaseStarted(session="s", case=KERNEL), event])))
    assert result.cases[0].worst == outside


@pytest.mark.parametrize("trouble", list(Trouble))
def test_a_case_that_could_not_run_has_the_status_of_its_trouble(trouble: Trouble) -> None:
    failed = CaseFailedToRun(session="s", case=MIXED, seconds=1, trouble=trouble, reason="RuntimeError: no")
    cases = case_events("s", LORA, 0.1), [CaseStarted(session="s", case=MIXED), failed], case_events("s", KERNEL, 0.1)
    result = judged(plan(ALL_THREE), worker(session_events("s", *cases)))
    assert statuses(result) == ["passed", trouble.value, "passed"]
    assert result.cases[1].reason == "RuntimeError: no"
    expected = ExitCode.ENVIRONMENT if trouble is Trouble.ENVIRONMENT else ExitCode.INCOMPLETE
    assert result.exit_code == expected


def test_skips_of_the_plan_and_of_the_session_say_why() -> None:
    planned = plan(ALL_THREE, skips={LORA: "no adapters here"})
    cases = skipped_events("s", MIXED, "needs two GPUs"), case_events("s", KERNEL, 0.1)
    result = judged(planned, worker(session_events("s", *cases)))
    assert statuses(result) == ["skipped", "skipped", "passed"]
    assert [case.reason for case in result.cases] == ["no adapters here", "needs two GPUs", ""]
    assert result.exit_code == ExitCode.CONFORMS


# Deaths that leave no case in flight.


@pytest.mark.parametrize("trouble", list(Trouble))
def test_a_death_after_the_last_case_is_told_by_that_case(trouble: Trouble) -> None:
    cases = (case_events("s", name, 0.1) for name in ALL_THREE["s"])
    result = judged(plan(ALL_THREE), worker(session_events("s", *cases, end=death("s", "SIGABRT", trouble))))
    assert statuses(result) == ["passed", "passed", trouble.value]
    assert "SIGABRT" in result.cases[2].reason and "passed" in result.cases[2].reason
    assert result.cases[2].measurements == (error_of(0.1),)
    assert result.exit_code == (ExitCode.ENVIRONMENT if trouble is Trouble.ENVIRONMENT else ExitCode.INCOMPLETE)


def test_a_failure_before_a_late_death_stays_readable() -> None:
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", case_events("s", KERNEL, 7.0), end=death("s"))))
    assert statuses(result) == ["crashed"]
    assert "max_abs_error = 7 nat" in result.cases[0].reason


def test_a_death_between_cases_is_told_by_those_that_were_not_run() -> None:
    events = worker(session_events("s", case_events("s", LORA, 0.1), end=death("s")))
    result = judged(plan(ALL_THREE), events)
    assert statuses(result) == ["passed", "missing", "missing"]
    assert all(f"session s crashed: SIGKILL, after case {LORA}" in case.reason for case in result.cases[1:])


@pytest.mark.parametrize("trouble", [Trouble.CRASHED, Trouble.TIMEOUT])
def test_a_session_that_dies_while_it_starts_gives_its_trouble_to_its_first_case(trouble: Trouble) -> None:
    start = session_events("s")[0]
    result = judged(plan(ALL_THREE), worker([start, death("s", "exit code 1", trouble)]))
    assert statuses(result) == [trouble.value, "missing", "missing"]
    assert all("exit code 1, while it started" in case.reason for case in result.cases)
    assert result.exit_code == ExitCode.INCOMPLETE


def test_a_machine_that_cannot_start_the_session_is_the_environment() -> None:
    start = session_events("s")[0]
    result = judged(plan(ALL_THREE), worker([start, death("s", "torch sees no GPU", Trouble.ENVIRONMENT)]))
    assert statuses(result) == ["environment"] * 3
    assert result.exit_code == ExitCode.ENVIRONMENT


def test_a_crash_of_a_session_that_skipped_everything_is_told() -> None:
    planned = plan({"s": [MIXED], "t": [KERNEL]})
    events = worker(
        session_events("s", skipped_events("s", MIXED, "no"), end=death("s")),
        session_events("t", case_events("t", KERNEL, 0.1)),
    )
    result = judged(planned, events)
    assert statuses(result) == ["skipped", "passed"]
    assert "session s crashed" in texts(result)
    assert result.exit_code == ExitCode.INCOMPLETE


# A run whose cases are all green, and which is red all the same.


def green(extra: list[object] | None = None) -> list[object]:
    return [*worker(session_events("s", *(case_events("s", name, 0.1) for name in ALL_THREE["s"]))), *(extra or [])]


def test_the_green_run_is_green() -> None:
    result = judged(plan(ALL_THREE), green())  # type: ignore[arg-type]
    assert statuses(result) == ["passed"] * 3
    assert (result.exit_code, result.problems) == (ExitCode.CONFORMS, ())


def test_no_worker_finished() -> None:
    result = judged(plan(ALL_THREE), green()[:-1])  # type: ignore[arg-type]
    assert "without saying that it was done" in texts(result)
    assert result.exit_code == ExitCode.INCOMPLETE


def test_a_worker_that_dies_at_its_end() -> None:
    end = RuntimeEnded(trouble=Trouble.CRASHED, reason="SIGSEGV")
    result = judged(plan(ALL_THREE), green(), host=[RUNTIME_STARTED, end])  # type: ignore[arg-type]
    assert "SIGSEGV" in texts(result)
    assert result.exit_code == ExitCode.INCOMPLETE


def test_no_end_of_the_run() -> None:
    result = judged(plan(ALL_THREE), green(), host=[RUNTIME_STARTED])  # type: ignore[arg-type]
    assert "end of the run" in texts(result)
    assert result.exit_code == ExitCode.INCOMPLETE


def test_no_end_of_a_session() -> None:
    events = [event for event in green() if getattr(event, "event", "") != "session-ended"]
    result = judged(plan(ALL_THREE), events)  # type: ignore[arg-type]
    assert "end of session s" in texts(result)
    assert result.exit_code == ExitCode.INCOMPLETE


def test_damaged_lines() -> None:
    result = judged(plan(ALL_THREE), green(), damaged=2)  # type: ignore[arg-type]
    assert "2 lines" in texts(result) and result.damaged_lines == 2
    assert result.exit_code == ExitCode.INCOMPLETE


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        (finished("s", "kernels/triton/unplanned", 0.1), "kernels/triton/unplanned"),
        (clean_end("stranger"), "stranger"),
        (clean_end("s"), "more than once"),
        (SessionStarted(session="s", pid=9), "the session s started more than once"),
        (SessionReady(session="s", seconds=1.0, facts={}), "the session s was ready more than once"),
        (WorkerFinished(), "the worker finished more than once"),
        (WorkerStarted(run_id=RUN_ID, pid=9, facts={}), "more than once"),
        (WorkerStarted(run_id="another", pid=9, facts={}), "another run"),
        (GOOD_END, "runtime-ended"),
    ],
)
def test_events_that_no_good_run_has(extra: object, named: str) -> None:
    result = judged(plan(ALL_THREE), green([extra]))  # type: ignore[arg-type]
    assert statuses(result) == ["passed"] * 3
    assert named in texts(result)
    assert result.exit_code == ExitCode.INCOMPLETE


@pytest.mark.parametrize(
    ("extra", "named"),
    [(GOOD_END, "the runtime ended more than once"), (RUNTIME_STARTED, "the runtime started more than once")],
)
def test_a_host_that_tells_its_events_twice(extra: AnyEvent, named: str) -> None:
    result = judged(plan(ALL_THREE), green(), host=(RUNTIME_STARTED, GOOD_END, extra))
    assert named in texts(result) and result.exit_code == ExitCode.INCOMPLETE


def test_a_full_disk_after_a_clean_end_is_the_machines() -> None:
    full = RuntimeEnded(trouble=Trouble.ENVIRONMENT, reason="the disk is full")
    result = judged(plan(ALL_THREE), green(), host=(RUNTIME_STARTED, GOOD_END, full))
    assert "the disk is full" in texts(result) and result.exit_code == ExitCode.ENVIRONMENT


@pytest.mark.parametrize("values", [(0.1, 0.1), (0.1, 9.0), (9.0, 0.1)])
def test_a_case_that_reports_twice_is_red(values: tuple[float, float]) -> None:
    cases = [event for value in values for event in case_events("s", KERNEL, value)]
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", cases)), waivers=[waiver()])
    assert statuses(result) == ["failed"]
    assert result.cases[0].reason == "reported 2 times"
    assert result.exit_code == ExitCode.NOT_CONFORMING


def test_a_case_that_starts_again_is_red() -> None:
    cases = [CaseStarted(session="s", case=KERNEL), *case_events("s", KERNEL, 0.1)]
    assert statuses(judged(plan({"s": [KERNEL]}), worker(session_events("s", cases)))) == ["failed"]


def test_a_second_end_does_not_undo_the_death_of_a_session() -> None:
    events = worker(session_events("s", case_events("s", KERNEL, 0.1), end=death("s")), [clean_end("s")])
    assert statuses(judged(plan({"s": [KERNEL]}), events)) == ["crashed"]


def test_a_case_reported_by_another_session_is_red() -> None:
    planned = plan({"s": [LORA], "t": [KERNEL]})
    events = worker(
        session_events("s", case_events("s", LORA, 0.1), case_events("s", KERNEL, 0.1)),
        session_events("t", case_events("t", KERNEL, 0.1)),
    )
    result = judged(planned, events)
    assert statuses(result) == ["passed", "failed"]
    assert "reported by session s" in result.cases[1].reason


def test_a_case_that_was_to_be_skipped_and_ran_is_red() -> None:
    planned = plan({"s": [LORA, KERNEL]}, skips={KERNEL: "does not apply"})
    events = worker(session_events("s", case_events("s", LORA, 0.1), case_events("s", KERNEL, 0.1)))
    result = judged(planned, events)
    assert statuses(result) == ["passed", "failed"]


def test_an_id_that_was_planned_twice_is_red() -> None:
    result = judged(plan({"s": [KERNEL, KERNEL]}), worker(session_events("s", case_events("s", KERNEL, 0.1))))
    assert statuses(result) == ["failed", "failed"]


@pytest.mark.parametrize("mode", list(Mode))
def test_no_planned_case_is_red(mode: Mode) -> None:
    result = judged(plan({}), worker(), mode=mode)
    assert "no case was planned" in texts(result)
    assert result.exit_code == ExitCode.INCOMPLETE


@pytest.mark.parametrize("mode", list(Mode))
def test_a_run_that_skipped_everything_is_red(mode: Mode) -> None:
    planned = plan({"s": [KERNEL]}, skips={KERNEL: "does not apply"})
    result = judged(planned, worker(), mode=mode)
    assert statuses(result) == ["skipped"]
    assert result.exit_code == ExitCode.INCOMPLETE


# Qualification.


def test_qualify_refuses_a_skip_in_a_mandatory_battery() -> None:
    planned = plan(ALL_THREE, skips={LORA: "no adapters here"})
    events = worker(session_events("s", case_events("s", MIXED, 0.1), case_events("s", KERNEL, 0.1)))
    result = judged(planned, events, mode=Mode.QUALIFY)
    assert LORA in texts(result) and "no adapters here" in texts(result)
    assert result.exit_code == ExitCode.NOT_CONFORMING


def test_qualify_refuses_a_mandatory_battery_without_cases() -> None:
    events = worker(session_events("s", case_events("s", LORA, 0.1), case_events("s", KERNEL, 0.1)))
    result = judged(plan({"s": [LORA, KERNEL]}), events, mode=Mode.QUALIFY)
    assert "multi-lora has no case" in texts(result)
    assert result.exit_code == ExitCode.NOT_CONFORMING


@pytest.mark.parametrize(("mode", "code"), [(Mode.CI, ExitCode.CONFORMS), (Mode.QUALIFY, ExitCode.NOT_CONFORMING)])
def test_injected_faults_are_loud_and_refused_in_qualify(mode: Mode, code: ExitCode) -> None:
    result = judged(plan(ALL_THREE, faults=("adapter-scaling",)), green(), mode=mode)  # type: ignore[arg-type]
    assert "FAULT INJECTED" in result.warnings[0] and "adapter-scaling" in result.warnings[0]
    assert result.exit_code == code


def test_a_process_left_behind_is_a_warning() -> None:
    end = RuntimeEnded(trouble=None, reason="exit code 0", left_behind=("python (77)",))
    result = judged(plan(ALL_THREE), green(), host=[RUNTIME_STARTED, end])  # type: ignore[arg-type]
    assert any("python (77)" in warning for warning in result.warnings)
    assert result.exit_code == ExitCode.CONFORMS


def test_another_profile_than_the_plans_is_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match="not cpu"):
        judged(plan(ALL_THREE).model_copy(update={"profile": "B200-4gpu"}), [])
