"""What a verdict carries beside its status, and whose fault an end is: where mutants of `kit.results.verdict` had survived."""

import pytest

from kit.events import CaseFailedToRun, CaseFinished, CaseStarted, RuntimeEnded, SessionReady, SessionStarted, Trouble
from tests.unit.results.streams import (
    GOOD_END,
    KERNEL,
    LORA,
    MIXED,
    RUNTIME_STARTED,
    clean_end,
    error_of,
    finished,
    judged,
    plan,
    session_events,
    statuses,
    waiver,
    worker,
)

STARTED = CaseStarted(session="s", case=KERNEL)
KILLED = RuntimeEnded(trouble=Trouble.CRASHED, reason="killed by SIGKILL")


@pytest.mark.parametrize("value", [0.5, 2.0])
def test_evidence_seconds_and_measurements_reach_the_result(value: float) -> None:
    told = CaseFinished(
        session="s", case=KERNEL, seconds=1.25, measurements=(error_of(value),), evidence={"heads": [3, 5]}
    )
    case = judged(plan({"s": [KERNEL]}), worker(session_events("s", [STARTED, told]))).cases[0]
    assert (case.evidence, case.seconds, case.measurements) == ({"heads": [3, 5]}, 1.25, (error_of(value),))


def test_a_case_that_judged_nothing_keeps_what_it_told() -> None:
    told = CaseFinished(session="s", case=KERNEL, seconds=1.25, measurements=(), evidence={"heads": [3]})
    case = judged(plan({"s": [KERNEL]}), worker(session_events("s", [STARTED, told]))).cases[0]
    assert (case.evidence, case.seconds, case.measurements) == ({"heads": [3]}, 1.25, ())


@pytest.mark.parametrize(
    ("trouble", "status"),
    [(Trouble.CRASHED, "waived"), (Trouble.TIMEOUT, "timeout"), (Trouble.ENVIRONMENT, "environment")],
)
def test_of_cases_that_failed_to_run_a_waiver_covers_a_crash_alone(trouble: Trouble, status: str) -> None:
    failed = CaseFailedToRun(session="s", case=KERNEL, seconds=0.75, trouble=trouble, reason="RuntimeError: no")
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", [STARTED, failed])), waivers=[waiver()])
    assert statuses(result) == [status]
    assert result.cases[0].seconds == 0.75
    assert "RuntimeError: no" in result.cases[0].reason


def test_a_case_in_flight_when_its_session_ends_cleanly_crashed() -> None:
    events = worker(session_events("s", [STARTED], end=clean_end("s")))
    result = judged(plan({"s": [KERNEL]}), events, waivers=[waiver()])
    assert statuses(result) == ["waived"]
    assert "ended cleanly" in result.cases[0].reason


def test_a_case_in_flight_when_nobody_told_an_end_is_missing_and_no_waiver_covers_it() -> None:
    events = [
        *worker(done=False),
        SessionStarted(session="s", pid=2),
        SessionReady(session="s", seconds=1.0, facts={}),
        STARTED,
    ]
    result = judged(plan({"s": [KERNEL]}), events, host=[RUNTIME_STARTED], waivers=[waiver()])
    assert statuses(result) == ["missing"]
    assert result.cases[0].reason.startswith("started, and nothing was reported: the end of the run was not recorded")


def test_a_case_in_flight_when_its_worker_is_killed_crashed_and_no_waiver_covers_it() -> None:
    events = [
        *worker(done=False),
        SessionStarted(session="s", pid=2),
        SessionReady(session="s", seconds=1.0, facts={}),
        STARTED,
    ]
    result = judged(plan({"s": [KERNEL]}), events, host=[RUNTIME_STARTED, KILLED], waivers=[waiver()])
    assert statuses(result) == ["crashed"]
    assert "the worker crashed: killed by SIGKILL" in result.cases[0].reason


def test_the_first_case_of_a_starting_session_does_not_take_the_trouble_of_its_worker() -> None:
    events = [*worker(done=False), SessionStarted(session="s", pid=2)]
    result = judged(plan({"s": [LORA, MIXED]}), events, host=[RUNTIME_STARTED, KILLED])
    assert statuses(result) == ["missing", "missing"]
    assert all(case.reason.startswith("not run: the worker crashed") for case in result.cases)


def test_a_case_that_is_reported_twice_keeps_the_first_report_and_no_waiver_covers_it() -> None:
    first = CaseFinished(session="s", case=KERNEL, seconds=1.25, measurements=(error_of(2.0),), evidence={"heads": [3]})
    events = worker(session_events("s", [STARTED, first, finished("s", KERNEL, 0.5)]))
    result = judged(plan({"s": [KERNEL]}), events, host=(RUNTIME_STARTED, GOOD_END), waivers=[waiver()])
    case = result.cases[0]
    assert (case.status.value, case.reason) == ("failed", "reported 2 times")
    assert (case.evidence, case.seconds, case.measurements) == ({"heads": [3]}, 1.25, (error_of(2.0),))
