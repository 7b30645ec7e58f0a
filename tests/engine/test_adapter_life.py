"""The life of an adapter on this machine: real SGLang with three slots, the whole way from the command to the exit code."""

from pathlib import Path

import pytest

from tests.jobs import Job

pytestmark = pytest.mark.engine
LIFE = "multi-lora/tiny-qwen3/life"
FEW = (f"{LIFE}-one-slot-others", f"{LIFE}-refused-weights-truncated", f"{LIFE}-refused-other-base")


def test_every_adapter_is_right_after_every_other_in_one_slot(tmp_path: Path) -> None:
    cases = [f"--case={case}" for case in FEW]
    done = Job(tmp_path / "out", "--profile", "cpu", "--runtime", "local", *cases).finish(600)
    assert done.code == 0, done.text
    assert done.statuses == {FEW[0]: "passed", FEW[1]: "passed", FEW[2]: "waived"}
    for case in done.result.cases:
        values = {m.name: m.value for m in case.measurements}
        assert values["max_abs_error"] < 2e-5 and values["engine_deaths"] == 0, case.id
    (slot,) = [case for case in done.result.cases if case.id == FEW[0]]
    assert slot.evidence["done"] == slot.evidence["operations"] == 2 + 10 * 9 + 1
