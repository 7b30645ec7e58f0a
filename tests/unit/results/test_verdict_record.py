"""All that a result holds beside the verdicts, and verdicts to the letter: where mutants of `kit.results.verdict` had survived."""

from datetime import date

import pytest

from kit.events import (
    CaseFinished,
    CaseSkipped,
    CaseStarted,
    RuntimeStarted,
    SessionEnded,
    SessionReady,
    SessionStarted,
    Trouble,
    WorkerStarted,
)
from kit.measurement import Comparison, LimitSource, Measurement
from kit.results.model import Mode, RunResult, SessionResult
from kit.results.verdict import judge
from kit.waiver import Expected, Waivers
from tests.unit.results.streams import (
    GOOD_END,
    KERNEL,
    LORA,
    MIXED,
    RUN_ID,
    TODAY,
    case_events,
    death,
    error_of,
    finished,
    judged,
    one_case,
    plan,
    profile,
    session_events,
    statuses,
    waiver,
    worker,
)

STARTED = CaseStarted(session="s", case=KERNEL)


@pytest.fixture
def told() -> RunResult:
    """Three sessions: one that ended cleanly, one that died, one of which nothing was told; facts of everybody who has any."""
    planned = plan({"s": [KERNEL], "died": [LORA], "silent": [MIXED]}, faults=("adapter-scaling",))
    planned = planned.model_copy(update={"omitted": 7})
    events = [
        WorkerStarted(run_id=RUN_ID, pid=1, facts={"python": "3.12.1"}),
        SessionStarted(session="s", pid=2),
        SessionReady(session="s", seconds=2.5, facts={"sglang": "0.5.17"}),
        CaseStarted(session="s", case=KERNEL, at=1_796_000_003.0),
        finished("s", KERNEL, 0.5),
        SessionEnded(session="s", trouble=None, reason="exit code 0"),
        SessionStarted(session="died", pid=3),
        death("died"),
    ]
    return judge(
        planned,
        profile(),
        mode=Mode.CI,
        worker_events=events,
        host_events=[RuntimeStarted(runtime="docker", facts={"engine": "docker 29"}), GOOD_END],
        waivers=Waivers(),
        today=TODAY,
        started=1_796_000_000.0,
        finished=1_796_000_060.0,
        image={"tag": "kit-cpu:1"},
        host={"hostname": "lab-7"},
    )


def test_facts_of_image_host_and_worker_are_in_the_result(told: RunResult) -> None:
    assert told.image == {"tag": "kit-cpu:1"}
    assert told.host == {"hostname": "lab-7", "engine": "docker 29"}
    assert told.worker == {"python": "3.12.1"}
    assert told.runtime == "docker"
    assert told.damaged_lines == 0


def test_what_the_run_cannot_say_is_in_the_result(told: RunResult) -> None:
    assert told.does_not_prove == profile().does_not_prove != ()
    assert [fault.name for fault in told.faults] == ["adapter-scaling"]
    assert told.omitted == 7


def test_each_session_tells_how_it_began_and_ended(told: RunResult) -> None:
    assert told.sessions == (
        SessionResult(
            id="s",
            ended=True,
            reason="exit code 0",
            ready_seconds=2.5,
            facts={"sglang": "0.5.17"},
            log="logs/s.log",
        ),
        SessionResult(
            id="died",
            ended=True,
            trouble=Trouble.CRASHED,
            reason="SIGKILL",
            log="logs/died.log",
            log_tail="last words",
        ),
        SessionResult(id="silent", ended=False, log="logs/silent.log"),
    )


def test_a_case_tells_when_it_started(told: RunResult) -> None:
    assert [case.started for case in told.cases] == [1_796_000_003.0, None, None]


@pytest.mark.parametrize(
    ("software", "status"),
    [
        ({"sglang": ">=0.5.17,<0.5.18"}, "waived"),
        ({"python": ">=3.12"}, "waived"),
        ({"engine-version": "==29"}, "waived"),
        ({"base": "==7"}, "waived"),
        ({"sglang": ">=0.5.18"}, "failed"),
        ({"wave-lang": ">=1"}, "failed"),
    ],
)
def test_a_waiver_is_asked_with_the_facts_of_session_worker_host_and_image(
    software: dict[str, str], status: str
) -> None:
    events = [
        WorkerStarted(run_id=RUN_ID, pid=1, facts={"python": "3.12.1"}),
        SessionStarted(session="s", pid=2),
        SessionReady(session="s", seconds=2.5, facts={"sglang": "0.5.17"}),
        *case_events("s", KERNEL, 2.0),
        SessionEnded(session="s", trouble=None, reason="exit code 0"),
    ]
    excuse = waiver().model_copy(update={"versions": software})
    result = judge(
        plan({"s": [KERNEL]}),
        profile(),
        mode=Mode.CI,
        worker_events=events,
        host_events=[RuntimeStarted(runtime="docker", facts={"engine-version": "29"}), GOOD_END],
        waivers=Waivers(waiver=(excuse,)),
        today=TODAY,
        started=0.0,
        finished=1.0,
        image={"base": "7"},
    )
    assert statuses(result) == [status]


def test_a_case_that_one_strange_session_reported_failed() -> None:
    events = worker(session_events("s", []), session_events("other", [finished("other", KERNEL, 0.5)]))
    result = judged(plan({"s": [KERNEL], "other": [LORA]}), events)
    case = result.cases[0]
    assert (case.status.value, case.reason) == ("failed", "reported by session other, which is not its own (s)")


def test_a_case_to_be_skipped_that_was_only_started_failed() -> None:
    planned = plan({"s": [KERNEL, LORA]}, skips={KERNEL: "no such hardware"})
    result = judged(planned, worker(session_events("s", [STARTED], case_events("s", LORA, 0.5))))
    case = result.cases[0]
    assert (case.status.value, case.reason) == (
        "failed",
        "was to be skipped (no such hardware), yet session s ran it",
    )


def test_a_case_that_started_twice_and_never_ended_failed() -> None:
    case = judged(plan({"s": [KERNEL]}), worker(session_events("s", [STARTED, STARTED]))).cases[0]
    assert (case.status.value, case.reason, case.seconds) == ("failed", "reported 2 times", None)


def measurement(name: str, value: float, limit: float | None) -> Measurement:
    judged = {} if limit is None else {"comparison": Comparison.AT_MOST, "limit": limit, "source": LimitSource.PEER}
    return Measurement.model_validate({"name": name, "value": value, "unit": "nat"} | judged)


def of_measurements(*measurements: Measurement) -> RunResult:
    end = CaseFinished(session="s", case=KERNEL, seconds=1.0, measurements=measurements)
    return judged(plan({"s": [KERNEL]}), worker(session_events("s", [STARTED, end])))


def test_what_has_no_limit_is_kept_and_judged_nothing() -> None:
    reported = measurement("max_abs_error", 3.0, None)
    case = of_measurements(reported).cases[0]
    assert (case.status.value, case.measurements) == ("missing", (reported,))
    assert case.reason == "nothing was judged: no measurement has a limit"


def test_an_infinite_limit_is_kept_and_judges_nothing() -> None:
    boundless = measurement("max_abs_error", 3.0, float("inf"))
    case = of_measurements(boundless).cases[0]
    assert (case.status.value, case.measurements) == ("failed", (boundless,))
    assert case.reason == "the limit of max_abs_error is infinite, so it judges nothing"


def test_the_reason_says_what_it_means_and_then_the_number() -> None:
    small = Measurement(
        name="effect", value=0.0, unit="nat", comparison=Comparison.AT_LEAST, limit=0.5, source=LimitSource.PEER
    )
    reason = of_measurements(small).cases[0].reason
    assert reason.startswith("the adapter has no or too little effect; effect = 0 nat, limit >= 0.5 (peer)")


@pytest.mark.parametrize("waived", [False, True])
def test_a_reason_has_at_most_500_characters(waived: bool) -> None:
    """The place of a measurement may be long; a waiver that does not expect the failure adds a clause."""
    long = measurement("max_abs_error", 2.0, 1.0).model_copy(update={"where": "row " * 300})
    excuse = waiver().model_copy(update={"expected": (Expected(measurement="nothing", at_least=1.0),)})
    end = CaseFinished(session="s", case=KERNEL, seconds=1.0, measurements=(long,))
    result = judged(
        plan({"s": [KERNEL]}), worker(session_events("s", [STARTED, end])), waivers=[excuse] if waived else []
    )
    assert (result.cases[0].status.value, len(result.cases[0].reason)) == ("failed", 500)


def test_a_late_death_is_found_behind_sessions_without_one() -> None:
    """Of four sessions one ended cleanly, one died and left a case unanswered, and two died after their last answer."""
    cases = {name: f"kernels/null/{name}" for name in ("clean", "open", "late", "later")}
    events = worker(
        session_events("clean", case_events("clean", cases["clean"], 0.5)),
        session_events("open", case_events("open", cases["open"], 0.5), end=death("open")),
        session_events("late", case_events("late", cases["late"], 0.5), end=death("late")),
        session_events("later", case_events("later", cases["later"], 2.0), end=death("later")),
    )
    planned = plan(
        {"clean": [cases["clean"]], "open": [cases["open"], LORA], "late": [cases["late"]], "later": [cases["later"]]}
    )
    by_id = {case.id: case for case in judged(planned, events).cases}
    assert by_id[cases["clean"]].status.value == by_id[cases["open"]].status.value == "passed"
    assert by_id[cases["late"]].status.value == by_id[cases["later"]].status.value == "crashed"
    assert by_id[cases["late"]].reason == (
        "session late crashed after this case, the last that it ran: SIGKILL; the case itself: passed"
    )
    assert "; the case itself: failed (" in by_id[cases["later"]].reason


def test_an_expired_waiver_adds_nothing_to_the_reason_of_a_case_that_it_could_not_excuse() -> None:
    skipped = CaseSkipped(session="s", case=KERNEL, reason="no such hardware")
    old = waiver(opened=date(2026, 9, 1), expires=date(2026, 11, 1))
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", [STARTED, skipped])), waivers=[old])
    assert (result.cases[0].status.value, result.cases[0].reason) == ("skipped", "no such hardware")


def test_an_unexpected_pass_names_its_waiver() -> None:
    case, result = one_case(0.5, waivers=[waiver()])
    assert (case.status.value, case.waiver) == ("unexpected-pass", "known-fault")
    assert [used.id for used in result.waivers] == ["known-fault"]


def test_measurements_of_the_helper_are_what_a_case_carries() -> None:
    case, _ = one_case(0.5)
    assert case.measurements == (error_of(0.5),)
