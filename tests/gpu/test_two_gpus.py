"""On a machine with two GPUs of the profile H200-2gpu: what happens when a rank of a tensor-parallel engine dies."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from kit.errors import ExitCode
from kit.events import AnyEvent, CaseStarted, EventReader
from kit.results.model import load_result

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")

OPTIONS = ("--profile", "h200-2gpu", "--runtime", "local", "--case", "lora-logprob/tiny-llama+tensor-parallel/*")
VICTIM = "lora-logprob/tiny-llama+tensor-parallel/adapter-0"


def used_memory() -> list[int]:
    """MiB in use on each GPU."""
    told = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(line) for line in told.stdout.split()]


def wait_for_case(folder: Path, process: "subprocess.Popen[bytes]", case: str) -> AnyEvent:
    reader = EventReader(folder / "events.jsonl")
    while process.poll() is None:
        for event in reader.new():
            if isinstance(event, CaseStarted) and event.case == case:
                return event
        time.sleep(0.02)
    raise AssertionError("kit ended before that")


def test_a_rank_killed_in_mid_request_is_told_and_both_gpus_are_free_afterwards(tmp_path: Path) -> None:
    before, folder = used_memory(), tmp_path / "run"
    kit = subprocess.Popen([sys.executable, "-m", "kit", "run", *OPTIONS, "--output", str(folder)])
    wait_for_case(folder, kit, VICTIM)
    below = psutil.Process(kit.pid).children(recursive=True)
    ranks = [process for process in below if "TP1" in " ".join(process.cmdline())]
    assert len(ranks) == 1, [process.cmdline() for process in below]
    ranks[0].kill()
    killed = time.monotonic()
    assert kit.wait(120) == ExitCode.INCOMPLETE
    seconds = time.monotonic() - killed
    cases = {case.id: case for case in load_result(folder / "result.json").cases}
    assert cases[VICTIM].status == "crashed" and "SIGKILL" in cases[VICTIM].reason
    later = [
        case for case in list(cases.values())[list(cases).index(VICTIM) + 1 :] if case.session == cases[VICTIM].session
    ]
    assert later and {case.status for case in later} == {"missing"}
    assert [process for process in below if process.is_running()] == []
    assert all(now <= then + 64 for now, then in zip(used_memory(), before, strict=True))
    print(json.dumps({"seconds_from_kill_to_exit": round(seconds, 1), "reason": cases[VICTIM].reason}))
