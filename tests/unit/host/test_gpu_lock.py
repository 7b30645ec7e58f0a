"""Two runs never share a GPU, whatever order they come in, and a run that is killed holds none."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kit.errors import EnvironmentFault
from kit.host.gpu import Gpu
from kit.host.gpu_lock import lock_folder, reserved
from kit.profile import Profile, find_profile

H200 = find_profile("h200")
GPUS = tuple(Gpu(i, "nvidia", "sm_90", 141 * 2**30, "", f"GPU-{i}/x") for i in range(4))

HOLD = """
import sys, time
from pathlib import Path
from kit.host.gpu import Gpu
from kit.host.gpu_lock import reserved
from kit.profile import find_profile
gpus = tuple(Gpu(i, "nvidia", "sm_90", 141 * 2**30, "", f"GPU-{i}/x") for i in range(4))
with reserved(find_profile("h200"), gpus, (0,), Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def of(gpus: int) -> Profile:
    return H200.model_copy(update={"gpus": gpus})


def test_runs_side_by_side_take_different_gpus(tmp_path: Path) -> None:
    with reserved(of(2), GPUS, folder=tmp_path) as first, reserved(of(2), GPUS, folder=tmp_path) as second:
        assert [[gpu.index for gpu in taken] for taken in (first, second)] == [[0, 1], [2, 3]]
        with pytest.raises(EnvironmentFault, match=r"none can be had here: GPU 0 is held by another run"):
            reserved(of(1), GPUS, folder=tmp_path).__enter__()
    with reserved(of(4), GPUS, folder=tmp_path) as all_of_them:
        assert len(all_of_them) == 4


def test_what_is_wanted_and_held_is_refused(tmp_path: Path) -> None:
    with reserved(of(1), GPUS, (2,), tmp_path):
        with pytest.raises(EnvironmentFault, match="GPU 2 is held by another run"):
            reserved(of(2), GPUS, (1, 2), tmp_path).__enter__()
        with reserved(of(2), GPUS, (1, 3), tmp_path) as others:  # a refusal holds nothing
            assert [gpu.index for gpu in others] == [1, 3]


def test_a_killed_run_holds_nothing_and_a_living_one_is_named(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(EnvironmentFault, match=rf"GPU 0 is held by another run( \(process {child.pid}\))?"):
            reserved(of(1), GPUS, (0,), tmp_path).__enter__()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    with reserved(of(1), GPUS, (0,), tmp_path) as taken:
        assert taken == (GPUS[0],)


def test_a_run_without_gpus_locks_nothing(tmp_path: Path) -> None:
    with reserved(find_profile("cpu"), GPUS, folder=tmp_path) as taken:
        assert taken == ()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a file away")
def test_a_lock_file_of_another_user_still_locks(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with reserved(of(1), GPUS, (0,), tmp_path):
        pass
    for file in tmp_path.iterdir():
        os.chown(file, 65534, 65534)
    with reserved(of(1), GPUS, (0,), tmp_path), pytest.raises(EnvironmentFault, match="GPU 0 is held"):
        reserved(of(1), GPUS, (0,), tmp_path).__enter__()


def test_the_folder_is_one_for_the_whole_machine() -> None:
    assert str(lock_folder()) in ("/run/lock", "/tmp")
