"""Every fault of attention and LoRA kernels is seen by every case that must see it, in the interpreter, on SGLang's own kernels."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.faults.kernel_catalogue import KERNEL_FAULTS
from kit.faults.lora_kernel_catalogue import LORA_KERNEL_FAULTS

pytestmark = pytest.mark.engine

FAULTS = sorted(kind.name for kind in (*KERNEL_FAULTS, *LORA_KERNEL_FAULTS))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[str]]]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.engine.kernel_faults", str(tmp_path_factory.mktemp("faults"))]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, dict[str, list[str]]] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_without_a_fault_everything_is_green(found: dict[str, dict[str, list[str]]]) -> None:
    assert {name: red for name, red in found[""].items() if red} == {}
    assert len(found[""]) >= 12


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen_by_every_case_that_must_see_it(fault: str, found: dict[str, dict[str, list[str]]]) -> None:
    assert found[fault], "no case is asked"
    assert {name for name, red in found[fault].items() if not red} == set()


def test_a_short_window_is_told_by_positions(found: dict[str, dict[str, list[str]]]) -> None:
    assert all("wrongly_excluded" in red for red in found["kernel-window-one-short"].values())


def test_workspaces_are_told_by_poison(found: dict[str, dict[str, list[str]]]) -> None:
    for fault in ("kernel-empty-split", "kernel-workspace-unwritten"):
        assert any({"non_finite", "poison_changes"} & set(red) for red in found[fault].values())
