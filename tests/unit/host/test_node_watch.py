"""After a run, its GPUs must be as they were before it, or the run says what stayed."""

import os
from dataclasses import replace

import pytest

from kit.errors import EnvironmentFault
from kit.host.gpu import Gpu
from kit.host.node_watch import NodeWatch

GIB = 2**30
BEFORE = Gpu(0, "nvidia", "sm_90", 141 * GIB, "", "GPU-0", busy_pids=(1,), used=GIB)


def left(after: tuple[Gpu, ...], before: tuple[Gpu, ...] = (BEFORE,)) -> tuple[str, ...]:
    return NodeWatch(lambda: after, before).left(seconds=0)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (BEFORE, ()),
        (replace(BEFORE, used=GIB + GIB // 4), ()),
        (replace(BEFORE, busy_pids=()), ()),
        (replace(BEFORE, used=47 * GIB), ("46.0 GiB more memory in use on GPU 0 than before",)),
        (replace(BEFORE, busy_pids=(1, 2**22 + 1)), (f"process {2**22 + 1} on GPU 0",)),
    ],
)
def test_what_stayed_is_told(after: Gpu, told: tuple[str, ...]) -> None:
    assert left((after,)) == told


def test_a_process_is_named() -> None:
    (told,) = left((replace(BEFORE, busy_pids=(1, os.getpid())),))
    assert told.startswith(f"process {os.getpid()} ")
    assert told.endswith(" on GPU 0")


def test_a_gpu_that_fell_off_the_bus_is_told() -> None:
    (told,) = left(())
    assert "GPU 0 (GPU-0) is gone" in told


def test_a_driver_may_take_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.host.node_watch._POLL_SECONDS", 0.0)
    states = iter([replace(BEFORE, used=90 * GIB), replace(BEFORE, used=9 * GIB), BEFORE])
    assert NodeWatch(lambda: (next(states),), (BEFORE,)).left(seconds=5) == ()


def test_only_the_run_s_own_gpus_are_watched() -> None:
    other = replace(BEFORE, index=1, unique_id="GPU-1", used=90 * GIB)
    assert left((BEFORE, other)) == ()
    assert NodeWatch(lambda: (other,), ()).left() == ()


def test_a_driver_that_no_longer_answers_is_told() -> None:
    def silent() -> tuple[Gpu, ...]:
        raise EnvironmentFault("the NVIDIA driver does not answer", "see dmesg")

    (told,) = NodeWatch(silent, (BEFORE,)).left(seconds=0)
    assert "does not answer" in told
