"""What a waiver does to a verdict, and what it never excuses."""

import pytest

from kit.errors import ExitCode
from kit.events import (
    CaseStarted,
    RuntimeEnded,
    Trouble,
)
from kit.results.model import Mode, Status
from kit.waiver import Expected
from tests.unit.results.streams import (
    ALL_THREE,
    KERNEL,
    LORA,
    RUNTIME_STARTED,
    case_events,
    death,
    error_of,
    judged,
    one_case,
    plan,
    session_events,
    statuses,
    texts,
    waiver,
    worker,
)


def test_waived_when_it_failed_and_a_valid_waiver_covers_it() -> None:
    case, result = one_case(2.0, waivers=[waiver()])
    assert case.status is Status.WAIVED
    assert case.measurements == (error_of(2.0),)
    assert "known-fault" in case.reason and "2027-01-31" in case.reason
    assert case.waiver == "known-fault" and result.waivers == (waiver(),)
    assert result.exit_code == ExitCode.CONFORMS


def test_a_waiver_covers_a_crash_of_the_session_itself() -> None:
    events = worker(
        session_events("s", case_events("s", LORA, 0.1), [CaseStarted(session="s", case=KERNEL)], end=death("s")),
    )
    result = judged(plan({"s": [LORA, KERNEL]}), events, waivers=[waiver()])
    assert statuses(result) == ["passed", "waived"]
    assert result.exit_code == ExitCode.CONFORMS


def test_heap_corruption_at_exit_is_waived_with_the_last_case() -> None:
    """sglang pull request 39356: the cases pass, then the process dies."""
    events = worker(session_events("s", case_events("s", KERNEL, 0.1), end=death("s", "SIGABRT")))
    result = judged(plan({"s": [KERNEL]}), events, waivers=[waiver()])
    assert statuses(result) == ["waived"]
    assert "SIGABRT" in result.cases[0].reason
    assert result.exit_code == ExitCode.CONFORMS


def test_no_waiver_covers_the_death_of_the_worker() -> None:
    events = worker(session_events("s", [CaseStarted(session="s", case=KERNEL)])[:-1], done=False)
    end = RuntimeEnded(trouble=Trouble.CRASHED, reason="SIGKILL")
    result = judged(plan({"s": [KERNEL]}), events, host=[RUNTIME_STARTED, end], waivers=[waiver()])
    assert statuses(result) == ["crashed"]
    assert result.exit_code == ExitCode.INCOMPLETE


@pytest.mark.parametrize("answered", [True, False])
def test_no_waiver_covers_a_session_that_was_stopped(answered: bool) -> None:
    case = case_events("s", KERNEL, 0.1) if answered else [CaseStarted(session="s", case=KERNEL)]
    end = RuntimeEnded(trouble=None, interrupted=True, reason="SIGTERM")
    events = worker(session_events("s", case, end=death("s", "SIGTERM")), done=False)
    result = judged(plan({"s": [KERNEL]}), events, host=[RUNTIME_STARTED, end], waivers=[waiver()])
    assert statuses(result) == ["crashed"]
    assert (result.exit_code, result.problems) == (ExitCode.INTERRUPTED, ())


@pytest.mark.parametrize("trouble", [Trouble.TIMEOUT, Trouble.ENVIRONMENT])
def test_no_waiver_covers_what_was_not_measured(trouble: Trouble) -> None:
    events = worker(session_events("s", [CaseStarted(session="s", case=KERNEL)], end=death("s", trouble=trouble)))
    result = judged(plan({"s": [KERNEL]}), events, waivers=[waiver()])
    assert statuses(result) == [trouble.value]


def test_no_waiver_covers_a_missing_case() -> None:
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s")), waivers=[waiver()])
    assert statuses(result) == ["missing"]


@pytest.mark.parametrize(("mode", "code"), [(Mode.CI, ExitCode.CONFORMS), (Mode.QUALIFY, ExitCode.NOT_CONFORMING)])
def test_an_unexpected_pass_is_a_warning_in_ci_and_red_in_qualify(mode: Mode, code: ExitCode) -> None:
    events = worker(session_events("s", *(case_events("s", name, 0.1) for name in ALL_THREE["s"])))
    result = judged(plan(ALL_THREE), events, mode=mode, waivers=[waiver()])
    assert statuses(result) == ["passed", "passed", "unexpected-pass"]
    assert any(KERNEL in warning and "known-fault" in warning for warning in result.warnings)
    assert result.exit_code == code


@pytest.mark.parametrize(
    ("today", "status"),
    [("2027-01-30", Status.WAIVED), ("2027-01-31", Status.WAIVED), ("2027-02-01", Status.FAILED)],
)
def test_a_waiver_counts_up_to_its_last_day(today: str, status: Status) -> None:
    case, result = one_case(2.0, waivers=[waiver()], today=waiver().expires.fromisoformat(today))
    assert case.status is status
    if status is Status.FAILED:
        assert "waiver known-fault expired on 2027-01-31" in case.reason
        assert result.exit_code == ExitCode.NOT_CONFORMING
        assert any("expired" in warning for warning in result.warnings)


def test_an_expired_waiver_is_refused_in_qualify_even_where_its_case_passed() -> None:
    after, last_day = waiver().expires.replace(month=3), waiver().expires
    events = worker(session_events("s", *(case_events("s", name, 0.1) for name in ALL_THREE["s"])))
    assert judged(plan(ALL_THREE), events, waivers=[waiver()], today=after).exit_code == ExitCode.CONFORMS
    assert not texts(judged(plan(ALL_THREE), events, waivers=[waiver()], today=last_day, mode=Mode.QUALIFY))
    result = judged(plan(ALL_THREE), events, waivers=[waiver()], today=after, mode=Mode.QUALIFY)
    assert statuses(result) == ["passed", "passed", "passed"]
    assert "known-fault expired" in texts(result)
    assert result.exit_code == ExitCode.NOT_CONFORMING


def test_no_waiver_covers_a_double_report_before_a_death() -> None:
    cases = case_events("s", KERNEL, 0.1) * 2
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", cases, end=death("s"))), waivers=[waiver()])
    assert statuses(result) == ["crashed"]
    assert "reported 2 times" in result.cases[0].reason


def test_another_failure_than_the_expected_one_is_not_covered() -> None:
    expects = waiver().model_copy(
        update={"expected": (Expected(measurement="max_abs_error", at_least=1.5, at_most=3.0),)}
    )
    case, result = one_case(2.0, waivers=[expects])
    assert (case.status, result.exit_code) == (Status.WAIVED, ExitCode.CONFORMS)
    case, result = one_case(20.0, waivers=[expects])
    assert (case.status, result.exit_code) == (Status.FAILED, ExitCode.NOT_CONFORMING)
    assert "not the failure that waiver known-fault expects" in case.reason
    assert (case.waiver, result.waivers) == (None, ())
    crash = worker(session_events("s", [CaseStarted(session="s", case=KERNEL)], end=death("s")))
    assert statuses(judged(plan({"s": [KERNEL]}), crash, waivers=[expects])) == ["crashed"]
    case, _ = one_case(0.1, waivers=[expects])
    assert case.status is Status.UNEXPECTED_PASS
