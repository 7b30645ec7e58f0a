"""Tensor parallelism without a GPU: real SGLang over four processes, against the float64 oracle."""

from pathlib import Path

import pytest

from tests.jobs import Job

pytestmark = [pytest.mark.engine, pytest.mark.nightly]
SPREAD = "lora-logprob/tiny-llama+tensor-parallel"


def test_four_ranks_give_what_one_gives(tmp_path: Path) -> None:
    """Attention, MLP, embedding and head are cut, and adapters with them; fp32 leaves 3e-6 nat of error on one rank and on four."""
    cases = [f"{SPREAD}/{name}" for name in ("base", "rank-4", "rank-64", "everything")]
    done = Job(
        tmp_path / "out", "--profile", "cpu-4rank", "--runtime", "local", *(f"--case={case}" for case in cases)
    ).finish(900)
    assert done.code == 0, done.text
    assert done.statuses == dict.fromkeys(cases, "passed")
    for case in done.result.cases:
        assert {m.name: m.value for m in case.measurements}["max_abs_error"] < 1e-5, case.id
    (session,) = done.result.sessions
    assert '"tp_size": 4' in session.facts["engine"]
