from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.check_spec import NullCheck
from kit.events import AnyEvent, SessionEnded, SessionStarted
from kit.host.local_runtime import LocalRuntime
from kit.plan import Devices, Plan
from kit.worker.scheduler import Shares, processor_threads, visible_devices
from tests.rehearsal import null_plan, rehearse, write_plan

SLEEP, PASS, ORPHAN = NullCheck(act="sleep", seconds=1.0), NullCheck(act="pass"), NullCheck(act="orphan")


@given(
    count=st.integers(1, 8),
    at_once=st.integers(1, 3),
    wishes=st.lists(st.integers(1, 8), max_size=40),
    data=st.data(),
)
def test_no_device_is_given_out_more_often_than_it_may_be(
    count: int, at_once: int, wishes: list[int], data: st.DataObject
) -> None:
    shares, held = Shares(Devices(count=count, sessions_at_once=at_once)), []
    for wish in wishes:
        taken = shares.take(wish)
        users = [sum(device in chosen for chosen in held) for device in range(count)]
        if taken is None:
            assert sum(used < at_once for used in users) < wish
            if held:
                shares.give_back(held.pop(data.draw(st.integers(0, len(held) - 1))))
        else:
            assert len(set(taken)) == wish and all(users[device] < at_once for device in taken)
            held.append(taken)


def test_one_session_per_gpu_comes_before_two_on_one() -> None:
    shares = Shares(Devices(count=2, sessions_at_once=2))
    assert [shares.take(1) for _ in range(5)] == [(0,), (1,), (0,), (1,), None]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [({}, "1,3"), ({"HIP_VISIBLE_DEVICES": "4,5,6,7"}, "5,7"), ({"CUDA_VISIBLE_DEVICES": "9"}, "1,3")],
)
def test_a_session_sees_its_own_gpus_only(seen: dict[str, str], expected: str) -> None:
    devices = Devices(count=4, visible="HIP_VISIBLE_DEVICES")
    assert visible_devices(devices, (1, 3), seen) == {"HIP_VISIBLE_DEVICES": expected}
    assert visible_devices(Devices(count=1), (0,), seen) == {}


@pytest.mark.parametrize(
    ("devices", "processors", "threads"),
    [
        (Devices(sessions_at_once=2), 2, "1"),
        (Devices(sessions_at_once=2), 6, "3"),
        (Devices(count=8), 128, "4"),
        (Devices(count=8), 4, "1"),
    ],
)
def test_sessions_share_the_processors(devices: Devices, processors: int, threads: str) -> None:
    assert processor_threads(devices, processors, {}) == {"OMP_NUM_THREADS": threads}
    assert processor_threads(devices, processors, {"OMP_NUM_THREADS": "7"}) == {}


def run(plan: Plan, folder: Path) -> tuple[dict[str, str], list[AnyEvent]]:
    write_plan(plan, folder / "run")
    (folder / "assets").mkdir()
    done = rehearse(plan, LocalRuntime(folder / "run", folder / "assets"), folder / "run")
    return done.statuses, list(done.seen.worker)


def overlap(events: list[AnyEvent]) -> int:
    """The largest number of sessions that ran at one time."""
    running = most = 0
    for event in events:
        running += isinstance(event, SessionStarted) - isinstance(event, SessionEnded)
        most = max(most, running)
    return most


def with_devices(plan: Plan, devices: Devices, *gpus: int) -> Plan:
    sessions = (s.model_copy(update={"gpus": need}) for s, need in zip(plan.sessions, gpus, strict=True))
    return plan.model_copy(update={"devices": devices, "sessions": tuple(sessions)})


def test_sessions_run_at_once_and_none_ends_the_processes_of_another(tmp_path: Path) -> None:
    plan = with_devices(null_plan([ORPHAN], [SLEEP, SLEEP], [ORPHAN]), Devices(sessions_at_once=3), 1, 1, 1)
    statuses, events = run(plan, tmp_path)
    assert set(statuses.values()) == {"passed"}
    assert overlap(events) == 3


def test_a_wide_session_starts_first_and_alone_on_its_devices(tmp_path: Path) -> None:
    plan = with_devices(null_plan([SLEEP], [SLEEP], [SLEEP]), Devices(count=2), 1, 2, 1)
    statuses, events = run(plan, tmp_path)
    assert set(statuses.values()) == {"passed"}
    started = [e.session for e in events if isinstance(e, SessionStarted)]
    assert started[0] == "null-1" and set(started[1:]) == {"null-0", "null-2"}  # these two at once
    assert overlap(events) == 2


def test_a_session_that_wants_its_device_alone_starts_first_and_shares_it_with_none(tmp_path: Path) -> None:
    plan = with_devices(null_plan([SLEEP], [SLEEP], [SLEEP]), Devices(sessions_at_once=2), 1, 1, 1)
    real = plan.sessions[1].model_copy(update={"alone": True})
    plan = plan.model_copy(update={"sessions": (plan.sessions[0], real, plan.sessions[2])})
    statuses, events = run(plan, tmp_path)
    assert set(statuses.values()) == {"passed"}
    told = [(type(e), e.session) for e in events if isinstance(e, SessionStarted | SessionEnded)]
    assert told[:2] == [(SessionStarted, "null-1"), (SessionEnded, "null-1")]


def test_a_session_whose_cases_are_all_skipped_is_not_started(tmp_path: Path) -> None:
    plan = null_plan([PASS], [PASS])
    skipped = plan.cases[1].model_copy(update={"skip": "its asset is not there"})
    statuses, events = run(plan.model_copy(update={"cases": (plan.cases[0], skipped)}), tmp_path)
    assert statuses == {"0/0-pass": "passed", "1/0-pass": "skipped"}
    assert [e.session for e in events if isinstance(e, SessionStarted)] == ["null-0"]


def test_a_session_that_needs_more_devices_than_there_are_is_the_machine_s_fault(tmp_path: Path) -> None:
    statuses, _ = run(with_devices(null_plan([PASS], [PASS]), Devices(count=1), 1, 2), tmp_path)
    assert statuses == {"0/0-pass": "passed", "1/0-pass": "environment"}
