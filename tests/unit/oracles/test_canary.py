import runpy
from pathlib import Path

import numpy as np
import pytest

from kit.oracles import canary
from kit.oracles.twice import OracleDisagreement, Summation

DERIVE = runpy.run_path(str(Path(__file__).with_name("derivation.py")))["derive"]


@pytest.mark.parametrize(("adapted", "recorded"), [(False, canary.QWEN3_BASE), (True, canary.QWEN3_ADAPTED)])
def test_recorded_answers_are_those_of_the_40_digit_derivation(adapted: bool, recorded: tuple[float, ...]) -> None:
    assert recorded == tuple(float(value) for value in DERIVE(adapted))


def test_the_oracles_give_the_known_answers() -> None:
    canary.check_attention.__wrapped__()
    canary.check_qwen3.__wrapped__()


@pytest.mark.parametrize("check", [canary.check_attention, canary.check_qwen3])
def test_a_machine_that_computes_wrongly_is_caught(check: object, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Summation.total
    monkeypatch.setattr(Summation, "total", lambda self, terms: honest(self, terms) * (1 + 1e-9))
    with pytest.raises(OracleDisagreement, match="known answer") as caught:
        check.__wrapped__()
    assert caught.value.exit_code == 3


def test_the_canary_feels_every_part_of_the_model() -> None:
    """Removing any one tensor's effect must change the answer, or the canary would not cover it."""
    settings, weights, adapter = canary.qwen3_case()
    from kit.oracles.qwen3 import LowRank, prompt_logprobs

    for name in weights:
        changed = {**weights, name: weights[name] * 1.25 + 0.01}
        found = prompt_logprobs(settings, changed, {}, canary.QWEN3_TOKENS)
        assert np.max(np.abs(found - canary.QWEN3_BASE)) > 1e-6, name
    for name, low in adapter.items():
        changed_adapter = {**adapter, name: LowRank(low.a, low.b, low.scaling * 1.1)}
        found = prompt_logprobs(settings, weights, changed_adapter, canary.QWEN3_TOKENS)
        assert np.max(np.abs(found - canary.QWEN3_ADAPTED)) > 1e-6, name
