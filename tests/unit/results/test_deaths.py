"""Session, worker and container may die at any point: every planned case is in the result, and the run is red."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.errors import ExitCode
from kit.events import AnyEvent, CaseStarted, RuntimeEnded, Trouble, parse_event
from kit.plan import Plan
from kit.results.model import RunResult, Status
from tests.unit.results.streams import (
    GOOD_END,
    KERNEL,
    LORA,
    MIXED,
    RUNTIME_STARTED,
    case_events,
    death,
    judged,
    plan,
    session_events,
    worker,
)

SESSIONS = {"sglang-tiny": [LORA, MIXED], "kernels-triton": [KERNEL]}


def planned() -> Plan:
    return plan(SESSIONS)


def whole() -> list[AnyEvent]:
    return worker(*(session_events(s, *(case_events(s, c, 0.1) for c in ids)) for s, ids in SESSIONS.items()))


EVENTS = len(whole())
ENDINGS = {
    "killed": (RuntimeEnded(trouble=Trouble.CRASHED, reason="SIGKILL"), ExitCode.INCOMPLETE),
    "over its limit": (RuntimeEnded(trouble=Trouble.TIMEOUT, reason="limit of 900 s"), ExitCode.INCOMPLETE),
    "no memory": (RuntimeEnded(trouble=Trouble.ENVIRONMENT, reason="out of memory"), ExitCode.ENVIRONMENT),
    "stopped": (RuntimeEnded(trouble=None, interrupted=True, reason="SIGINT"), ExitCode.INTERRUPTED),
    "exit code 0": (GOOD_END, ExitCode.INCOMPLETE),
    "unknown": (None, ExitCode.INCOMPLETE),
}


def reported(events: list[AnyEvent]) -> set[str]:
    return {event.case for event in events if event.event == "case-finished"}


def assert_told(result: RunResult, events: list[AnyEvent]) -> None:
    """Finished cases keep their verdict; no other case passes, and each says why."""
    for case in result.cases:
        if case.id in reported(events):
            assert case.status is Status.PASSED
        else:
            assert case.status in (Status.CRASHED, Status.TIMEOUT, Status.ENVIRONMENT, Status.MISSING)
            assert case.session in case.reason


@pytest.mark.parametrize("ending", list(ENDINGS))
@pytest.mark.parametrize("length", range(EVENTS))
def test_the_worker_dies_after_any_event(ending: str, length: int) -> None:
    events = whole()[:length]
    end, code = ENDINGS[ending]
    result = judged(planned(), events, host=[RUNTIME_STARTED, *([end] if end else [])])
    assert_told(result, events)
    assert result.exit_code == code
    if reported(events) != {LORA, MIXED, KERNEL}:
        assert result.problems == (), "the cases tell all, so JUnit holds the planned cases and no other"
    started = {event.case for event in events if isinstance(event, CaseStarted)}
    unstarted = "environment" if ending == "no memory" else "missing"
    assert {case.status.value for case in result.cases if case.id not in started} <= {unstarted}
    if events and isinstance(events[-1], CaseStarted):
        in_flight = next(case for case in result.cases if case.id == events[-1].case)
        if end is not None and end.trouble is not None:
            assert in_flight.status == end.trouble.value
            assert end.reason in in_flight.reason


@pytest.mark.parametrize("trouble", list(Trouble))
@pytest.mark.parametrize("length", range(1, 7))
def test_the_first_session_dies_after_any_of_its_events(trouble: Trouble, length: int) -> None:
    first = session_events("sglang-tiny", *(case_events("sglang-tiny", c, 0.1) for c in SESSIONS["sglang-tiny"]))
    events = [*first[:length], death("sglang-tiny", "exit code 139", trouble)]
    second = session_events("kernels-triton", case_events("kernels-triton", KERNEL, 0.1))
    result = judged(planned(), worker(events, second))
    status = {case.id: case.status for case in result.cases}
    assert status[KERNEL] is Status.PASSED, "the other session is not touched"
    red = [case for case in result.cases if case.status is not Status.PASSED]
    assert red and all("exit code 139" in case.reason for case in red)
    assert result.exit_code == (ExitCode.ENVIRONMENT if trouble is Trouble.ENVIRONMENT else ExitCode.INCOMPLETE)
    if isinstance(events[-2], CaseStarted):
        assert status[events[-2].case] == trouble.value
    if length == 6:
        assert [case.id for case in red] == [MIXED], "the death after the last case is the last case's"


def test_nothing_at_all_was_seen() -> None:
    result = judged(planned(), [], host=[])
    assert {case.status for case in result.cases} == {Status.MISSING}
    assert all("before it started" in case.reason for case in result.cases)
    assert (result.exit_code, result.runtime) == (ExitCode.INCOMPLETE, None)


def test_a_session_that_ends_cleanly_in_a_case_crashed_in_it() -> None:
    events = worker(session_events("sglang-tiny", [CaseStarted(session="sglang-tiny", case=LORA)]))
    result = judged(planned(), events)
    assert [case.status for case in result.cases] == [Status.CRASHED, Status.MISSING, Status.MISSING]
    assert "ended cleanly" in result.cases[0].reason


def test_a_session_ended_by_the_users_signal_says_so() -> None:
    first = [*session_events("sglang-tiny", [CaseStarted(session="sglang-tiny", case=LORA)])[:-1], death("sglang-tiny")]
    end = RuntimeEnded(trouble=Trouble.CRASHED, interrupted=True, reason="SIGTERM")
    result = judged(planned(), worker(first, done=False), host=[RUNTIME_STARTED, end])
    assert "interrupted" in result.cases[0].reason and "interrupted" in result.cases[2].reason
    assert result.interrupted and result.exit_code == ExitCode.INTERRUPTED


STREAM = b"".join(event.model_dump_json().encode() + b"\n" for event in whole())


@given(st.integers(0, len(STREAM) - 2))
def test_the_stream_is_cut_off_at_any_byte(cut: int) -> None:
    lines = [line for line in STREAM[:cut].split(b"\n") if line]
    parsed = [parse_event(line) for line in lines]
    events = [event for event in parsed if event is not None]
    result = judged(
        planned(),
        events,
        host=[RUNTIME_STARTED, RuntimeEnded(trouble=Trouble.CRASHED, reason="SIGKILL")],
        damaged=len(parsed) - len(events),
    )
    assert_told(result, events)
    assert result.exit_code == ExitCode.INCOMPLETE


@given(st.lists(st.integers(0, EVENTS - 1), max_size=30))
def test_any_shuffled_or_doubled_stream_gives_a_complete_result(order: list[int]) -> None:
    events = [whole()[index] for index in order]
    result = judged(planned(), events)
    assert json.loads(result.to_json())["run_id"] == planned().run_id
    for case in result.cases:
        ends = [event for event in events if event.event == "case-finished" and event.case == case.id]
        assert case.status is not Status.PASSED or len(ends) == 1
