"""How sessions fill GPUs, by the scheduler's own rules: against bounds, by hand, and measured on real processes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.check_spec import NullCheck
from kit.events import AnyEvent, SessionEnded, SessionStarted
from kit.host.local_runtime import LocalRuntime
from kit.host.planner import Selection, make_plan
from kit.plan import Devices, Plan
from kit.profile import find_profile
from kit.worker.packing import lower_bound, measured, simulated
from tests.rehearsal import null_plan, rehearse, write_plan

PASS = NullCheck(act="pass")


def plan_of(devices: Devices, *gpus: int, alone: tuple[int, ...] = ()) -> Plan:
    plan = null_plan(*([PASS] for _ in gpus))
    sessions = [
        session.model_copy(update={"gpus": need, "alone": place in alone})
        for place, (session, need) in enumerate(zip(plan.sessions, gpus, strict=True))
    ]
    return plan.model_copy(update={"devices": devices, "sessions": tuple(sessions)})


def times(plan: Plan, *seconds: float) -> dict[str, float]:
    return {session.id: each for session, each in zip(plan.sessions, seconds, strict=True)}


def test_two_wide_sessions_and_four_narrow_ones_on_four_gpus() -> None:
    plan = plan_of(Devices(count=4), 1, 4, 1, 2, 1, 1)
    packing = simulated(plan, times(plan, 10, 30, 10, 20, 10, 10))
    assert packing.starts == {"null-1": 0, "null-3": 30, "null-0": 30, "null-2": 30, "null-4": 40, "null-5": 40}
    assert packing.makespan == packing.bound == 50  # 120 + 40 + 4 · 10 GPU-seconds over 4


def test_a_session_that_is_alone_counts_with_all_shares_of_its_gpu() -> None:
    plan = plan_of(Devices(count=1, sessions_at_once=4), 1, 1, alone=(1,))
    assert simulated(plan, times(plan, 8, 8)).starts == {"null-1": 0, "null-0": 8}
    assert lower_bound(plan, times(plan, 8, 8)) == 10


def test_what_needs_more_gpus_than_there_are_stays_out() -> None:
    plan = plan_of(Devices(count=2), 4, 1)
    assert simulated(plan, times(plan, 9, 5)).starts == {"null-1": 0}


@given(
    count=st.integers(1, 8),
    at_once=st.integers(1, 3),
    wishes=st.lists(st.tuples(st.integers(1, 8), st.floats(1, 100)), min_size=1, max_size=20),
)
def test_the_makespan_is_at_most_twice_what_no_schedule_beats(
    count: int, at_once: int, wishes: list[tuple[int, float]]
) -> None:
    """Garey and Graham, Bounds for multiprocessor scheduling with resource constraints (1975): greedy schedules are within 2."""
    plan = plan_of(Devices(count=count, sessions_at_once=at_once), *(min(need, count) for need, _ in wishes))
    packing = simulated(plan, times(plan, *(seconds for _, seconds in wishes)))
    assert len(packing.starts) == len(wishes)
    assert packing.bound <= packing.makespan * (1 + 1e-9) and packing.makespan <= 2 * packing.bound * (1 + 1e-9)


@pytest.mark.parametrize("name", ["H200-4gpu", "MI355X-4gpu", "B200-4gpu"])
def test_the_four_gpu_profiles_spread_wide_sessions_first(name: str) -> None:
    """By the times of an H200 with warm caches: 100 s a session that spreads, 60 s any other; what real models take is theirs."""
    plan = make_plan(find_profile(name), Selection(batteries=("lora-logprob",)), "run")
    seconds = {session.id: 100.0 if session.gpus > 1 else 60.0 for session in plan.sessions}
    packing = simulated(plan, seconds)
    wide = [session.id for session in plan.sessions if session.gpus == 4]
    shared_outer = [n for n in wide if "shared-outer" in n]
    assert len(wide) >= 5 and shared_outer
    narrow = [packing.starts[s.id] for s in plan.sessions if s.id in packing.starts and s.gpus == 1]
    shared = plan.devices.sessions_at_once
    assert max(packing.starts[session] for session in wide) <= min(narrow) or shared > 1
    assert packing.makespan <= 1.5 * packing.bound


def test_real_processes_follow_the_simulation(tmp_path: Path) -> None:
    acts = [NullCheck(act="sleep", seconds=s) for s in (1.0, 1.5, 1.0, 1.0)]
    plan = null_plan(*([act] for act in acts))
    needs = (1, 2, 1, 2)
    sessions = [s.model_copy(update={"gpus": g}) for s, g in zip(plan.sessions, needs, strict=True)]
    plan = plan.model_copy(update={"devices": Devices(count=2), "sessions": tuple(sessions)})
    write_plan(plan, tmp_path / "run")
    (tmp_path / "assets").mkdir()
    events = list(rehearse(plan, LocalRuntime(tmp_path / "run", tmp_path / "assets"), tmp_path / "run").seen.worker)
    found = measured(plan, events)
    assert found is not None
    spans = {e.session: e.at for e in events if isinstance(e, SessionStarted)}
    seconds = {e.session: e.at - spans[e.session] for e in events if isinstance(e, SessionEnded)}
    expected = simulated(plan, seconds)
    assert sorted(found.starts, key=found.starts.__getitem__)[:2] == ["null-1", "null-3"]
    assert found.bound == expected.bound <= found.makespan
    assert expected.makespan - 0.5 <= found.makespan <= expected.makespan + 10  # between two sessions stands a start


def test_a_run_that_was_cut_off_has_no_packing() -> None:
    plan = plan_of(Devices(), 1)
    begun: list[AnyEvent] = [SessionStarted(session="null-0", pid=1)]
    assert measured(plan, begun) is None and measured(plan, []) is None
