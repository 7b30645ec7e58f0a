"""A selection of the self-test over every battery, with one engine: every fault is caught, and nothing is red without one.

The same engine is asked for the smallest error of scaling that is seen, and for three fault-free rounds.
"""

import importlib.util
from pathlib import Path

import pytest

from kit.faults.report_catalogue import REPORT_FAULTS
from kit.results.sums import faults_in_sums, read_folder
from kit.selftest.outcome import SelftestResult
from kit.selftest.upstream import together
from tests.jobs import kit

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="SGLang is not installed"),
]

FAULTS = {
    "adapter-missing": {"lora-logprob", "multi-lora"},
    "adapter-rank-halved": {"lora-logprob", "multi-lora"},
    "answers-in-bits": {"lora-logprob", "multi-lora"},
    "batch-slot-zero": {"lora-logprob"},
    "batch-rows-permuted": {"multi-lora"},
    "batch-base-adapted": {"multi-lora"},
    "logits-temperature=1.05": {"lora-logprob"},
    "kernel-workspace-unwritten": {"kernels"},
    "process-killed": {"process"},
    "process-answers-nan": {"process"},
}
"""By fault, the batteries that must see it."""
CASES = (
    "lora-logprob/tiny-qwen3/base",
    "lora-logprob/tiny-qwen3/adapter-0",
    "multi-lora/tiny-qwen3/few-rows",
    "kernels/triton-decode-space/*",
)


def test_ten_faults_are_caught_and_none_is_seen_where_there_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "selftest"
    chosen = [text for fault in FAULTS for text in ("--fault", fault)] + [t for case in CASES for t in ("--case", case)]
    further = ("--sweep", "adapter-scaling", "--rounds", "3")
    ended = kit("selftest", "--output", str(folder), *chosen, *further)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = SelftestResult.model_validate_json((folder / "selftest.json").read_bytes())
    seen = {outcome.fault: {name for name, caught in outcome.batteries.items() if caught} for outcome in found.faults}
    assert seen == FAULTS
    assert (found.alarms, found.rounds) == ((), 3)
    smallest = [sweep.deviation for sweep in found.sweeps]
    assert len(smallest) == 2
    assert all(deviation is not None and deviation <= 1e-3 for deviation in smallest)
    upstream = {outcome.name: together(outcome.upstream.values()) for outcome in found.faults}
    assert upstream["adapter-missing"] == upstream["kernel-workspace-unwritten"] == "caught"
    half_square = {outcome.name: outcome.upstream["½Δ²"] for outcome in found.faults}
    assert half_square["logits-temperature"] == "passed"
    assert upstream["process-killed"] == "cannot judge"
    assert list(faults_in_sums(read_folder(folder))) == []
    assert not {kind.name for kind in REPORT_FAULTS} & seen.keys()
