import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kit.oracles import canary
from kit.oracles.decoder import prompt_logprobs
from kit.oracles.layers import LowRank
from kit.oracles.twice import OracleDisagreement, Summation

DERIVATION = runpy.run_path(str(Path(__file__).with_name("derivation.py")))
FAMILIES = tuple(canary.CANARIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_answers_are_those_of_the_40_digit_derivation(family: str) -> None:
    assert DERIVATION["TOKENS"] == canary.TOKENS
    for adapted, recorded in ((False, canary.CANARIES[family].base), (True, canary.CANARIES[family].adapted)):
        assert recorded == tuple(float(value) for value in DERIVATION["derive"](family, adapted))


def test_every_family_is_derived() -> None:
    assert DERIVATION["FAMILIES"] == FAMILIES


def test_the_oracles_give_the_known_answers() -> None:
    canary.check_decoders.__wrapped__()


def test_a_machine_that_computes_wrongly_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Summation.total
    monkeypatch.setattr(Summation, "total", lambda self, terms: honest(self, terms) * (1 + 1e-9))
    with pytest.raises(OracleDisagreement, match="known answer") as caught:
        canary.check_decoders.__wrapped__()
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_the_canary_feels_every_part_of_the_model(family: str) -> None:
    """Removing any one tensor's effect must change the answer, or the canary would not cover it."""
    known = canary.CANARIES[family]
    weights, adapter = canary.canary_weights(family)
    for name in weights:
        changed = {
            **weights,
            name: weights[name] * 1.25 + 0.01 * np.arange(1, weights[name].size + 1).reshape(weights[name].shape),
        }
        found = prompt_logprobs(known.settings, changed, {}, canary.TOKENS)
        assert np.max(np.abs(found - known.base)) > 1e-6, name
    for name, low in adapter.items():
        changed_adapter = {**adapter, name: LowRank(low.a, low.b, low.scaling * 1.1)}
        found = prompt_logprobs(known.settings, weights, changed_adapter, canary.TOKENS)
        assert np.max(np.abs(found - known.adapted)) > 1e-6, name


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("gpt_oss", {"windows": (3, None)}),
        ("gpt_oss", {"windows": (2, 2)}),
        ("gpt_oss", {"experts": replace(canary.CANARIES["gpt_oss"].settings.experts, swiglu_limit=7.0)}),
        ("gpt_oss", {"experts": replace(canary.CANARIES["gpt_oss"].settings.experts, num_experts_per_tok=1)}),
        ("gpt_oss", {"rope": replace(canary.CANARIES["gpt_oss"].settings.rope, truncate=True)}),
        ("llama", {"rope": replace(canary.CANARIES["llama"].settings.rope, rope_type="default")}),
        ("llama", {"rope": replace(canary.CANARIES["llama"].settings.rope, factor=2.0)}),
    ],
)
def test_the_canary_feels_every_setting(family: str, change: dict) -> None:
    known = canary.CANARIES[family]
    weights, _ = canary.canary_weights(family)
    found = prompt_logprobs(replace(known.settings, **change), weights, {}, canary.TOKENS)
    assert np.max(np.abs(found - known.base)) > 1e-6
