"""Which modules SGLang must find; that it does is seen in every run with an engine (``lora-logprob/tiny-qwen3/target-modules``)."""

import sys
from types import SimpleNamespace

import pytest

from kit.checks import target_modules
from kit.checks.outcome import NotApplicable

UPSTREAM = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head"}
"""test_auto_detect_lora_target_modules of SGLang's test_lora_qwen3_8b_logprob_diff.py."""


def measured(monkeypatch: pytest.MonkeyPatch, found: set[str]) -> dict[str, float]:
    monkeypatch.setattr(target_modules, "qwen3_tree", lambda: None)
    utils = SimpleNamespace(auto_detect_lora_target_modules=lambda tree: found)
    monkeypatch.setitem(sys.modules, "sglang.srt.lora.utils", utils)
    result = target_modules.check()
    assert result.evidence == {"found": sorted(found), "expected": sorted(UPSTREAM)}
    assert all(m.within == (m.value == 0) for m in result.measurements)
    return {m.name: m.value for m in result.measurements}


def test_upstreams_set_is_green(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch, set(UPSTREAM)) == {"modules_not_found": 0, "modules_too_many": 0}


@pytest.mark.parametrize("lost", sorted(UPSTREAM))
def test_a_module_that_is_not_found_is_red(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    assert measured(monkeypatch, UPSTREAM - {lost}) == {"modules_not_found": 1, "modules_too_many": 0}


def test_a_renamed_module_is_red_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch, UPSTREAM - {"qkv_proj"} | {"q_proj", "embed_tokens"}) == {
        "modules_not_found": 1,
        "modules_too_many": 2,
    }


def test_an_sglang_without_the_function_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sglang.srt.lora.utils", SimpleNamespace())
    with pytest.raises(NotApplicable, match="target modules"):
        target_modules.check()
