from collections import Counter

import pytest

from kit.check_spec import NullCheck
from kit.errors import UsageFault
from kit.faults.catalogue import FAULTS, MARK, expected_red, fault_text, parse_fault, parse_injected
from kit.faults.process_catalogue import SIGNALS, TELLING
from kit.plan import Case, NullSession, Plan
from kit.profile import find_profile
from kit.selftest.choice import Choice, selftest_plan
from kit.waiver import load_waivers

CPU = find_profile("cpu")
NOT_ASKED = {
    "adapter-expert-dropped",  # the CPU profile runs no adapters of experts
}


def planned(*faults: str, rounds: int = 0, cases: tuple[str, ...] = ()) -> Plan:
    return selftest_plan(CPU, load_waivers(), Choice(faults, rounds, cases), "run")


@pytest.fixture(scope="module")
def whole() -> Plan:
    return planned(rounds=1)


def test_every_fault_is_asked_about_where_it_must_be_seen(whole: Plan) -> None:
    for case in whole.cases:
        for fault in case.faults:
            if any(expected_red((fault,), other) for other in whole.cases if other.faults == (fault,)):
                assert expected_red((fault,), case) or "/decode-text" in case.id, case.id


def test_what_no_case_of_the_profile_is_about_is_known(whole: Plan) -> None:
    asked = {fault.name for fault in whole.injected}
    left = {name for name, kind in FAULTS.items() if kind.acts_on not in ("reports", "containers", "ranks")} - asked
    assert left == NOT_ASKED


def test_case_ids_tell_the_fault_and_are_unique(whole: Plan) -> None:
    ids = [case.id for case in whole.cases]
    assert max(Counter(ids).values()) == 1
    assert all(case.id.partition(MARK)[2].isdecimal() != bool(case.faults) for case in whole.cases)
    sessions = {session.id for session in whole.sessions}
    assert {case.session for case in whole.cases} == sessions


def test_a_case_that_is_known_to_be_red_proves_nothing_and_is_not_asked(whole: Plan) -> None:
    assert not [case.id for case in whole.cases if "rslora" in case.id or "vocabulary-edges" in case.id]


def test_at_most_two_cases_of_each_battery_where_one_must_see_it(whole: Plan) -> None:
    seen = Counter(
        (case.battery, fault)
        for case in whole.cases
        for fault in case.faults
        if expected_red((fault,), case) and "/decode-text" not in case.id
    )
    assert max(seen.values()) == 2


def test_each_fault_around_or_in_an_engine_is_asked_with_texts_too(whole: Plan) -> None:
    asked = {fault.name for case in whole.cases if "/decode-text" in case.id for fault in case.faults}
    assert asked == {n for n, kind in FAULTS.items() if kind.acts_on in ("adapters", "answers", "engine")} - NOT_ASKED


def test_the_first_fault_free_round_is_of_the_same_cases_as_they_are() -> None:
    plan = planned("adapter-missing", rounds=1)
    asked = {case.id.partition(MARK)[0]: case.spec for case in plan.cases if case.faults}
    free = {case.id.partition(MARK)[0]: case.spec for case in plan.cases if not case.faults}
    assert free == asked
    assert {case.edition for case in plan.cases} == {0}


def test_further_rounds_have_seeds_and_adapters_of_their_own() -> None:
    plan = planned("none", rounds=200)
    rounds: dict[int, list[Case]] = {}
    for case in plan.cases:
        rounds.setdefault(int(case.id.partition(MARK)[2]), []).append(case)
    assert sorted(rounds) == list(range(200))
    for number, cases in rounds.items():
        assert {case.edition for case in cases} == {1000 + number if number else 0}
        assert len({case.session for case in cases}) == 1
        assert len({case.spec.check for case in cases}) == len(cases) >= 1
    seeds = [(case.id.partition(MARK)[0], getattr(case.spec, "seed", None)) for case in plan.cases]
    assert len(set(seeds)) == len(seeds)
    assert len({case.session for case in plan.cases}) > 5
    assert {case.battery for case in plan.cases} == {"lora-logprob", "multi-lora"}


def test_a_case_of_a_round_is_the_same_when_it_is_asked_alone() -> None:
    whole = {case.id: case for case in planned("none", rounds=40).cases}
    case = next(case for case in whole.values() if case.id.endswith(f"{MARK}30"))
    alone = planned("none", rounds=31, cases=(case.id.partition(MARK)[0],))
    assert case in alone.cases


def test_a_fault_of_processes_has_a_session_of_its_own() -> None:
    plan = planned(*TELLING)
    assert len(plan.sessions) == len(plan.cases) == len(TELLING)
    computing = {session.id for session in plan.sessions if not isinstance(session.spec, NullSession)}
    assert computing == {f"sglang-tiny-qwen3-{name}" for name in SIGNALS}


def test_cases_can_be_chosen() -> None:
    plan = planned("adapter-missing", cases=("multi-lora/*",))
    assert {case.battery for case in plan.cases} == {"multi-lora"}


def test_a_wrong_choice_is_told() -> None:
    with pytest.raises(UsageFault, match="no case of profile cpu is about the fault 'kernel-one-head-scaled'"):
        planned("kernel-one-head-scaled=1.1", cases=("multi-lora/*",))
    with pytest.raises(UsageFault, match="nothing is left to ask"):
        planned("none")
    with pytest.raises(UsageFault, match="use 'kit run --inject rank-silent' on a profile of several GPUs"):
        planned("adapter-missing", "rank-silent")


@pytest.mark.parametrize("fault", ["report-event-lost", "container-killed"])
def test_a_fault_around_a_run_has_a_run_of_one_case_that_passes(fault: str) -> None:
    (case,) = planned(fault, rounds=1).cases
    assert (case.id, case.faults, isinstance(case.spec, NullCheck)) == (f"process/null/passes{MARK}0", (), True)


@pytest.mark.parametrize("fault", ["process-killed", "report-event-lost", "container-killed"])
def test_what_no_battery_sees_is_refused_by_a_run(fault: str) -> None:
    with pytest.raises(UsageFault, match="acts on no battery; run 'kit selftest'"):
        parse_injected(fault)


def test_the_text_of_a_fault_is_read_as_that_fault() -> None:
    for kind in FAULTS.values():
        fault = parse_fault(kind.as_reported)
        assert parse_fault(fault_text(fault)) == fault
