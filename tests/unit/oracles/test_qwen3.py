from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kit.oracles import canary
from kit.oracles.qwen3 import prompt_logprobs
from kit.oracles.reference import LogprobOracle, read_adapter, read_model
from kit.synthetic.prompts import prompts

PROMPT = prompts([33], 2048, seed=3)[0]


@pytest.fixture(scope="module")
def model(assets: Path) -> Path:
    return assets / "tiny-qwen3"


def test_a_token_depends_on_nothing_after_it(model: Path) -> None:
    settings, weights = read_model(model)
    whole = prompt_logprobs(settings, weights, {}, PROMPT)
    part = prompt_logprobs(settings, weights, {}, PROMPT[:20])
    np.testing.assert_allclose(whole[:19], part, rtol=0, atol=1e-12)


def test_probabilities_of_all_next_tokens_sum_to_one() -> None:
    settings, weights, adapter = canary.qwen3_case()
    total = sum(np.exp(prompt_logprobs(settings, weights, adapter, [2, token])[0]) for token in range(5))
    assert total == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("name", ["adapter-0", "adapter-1"])
def test_an_adapter_is_the_model_with_merged_weights(model: Path, name: str) -> None:
    settings, weights = read_model(model)
    adapter = read_adapter(model / "adapters" / name)
    merged = dict(weights)
    for module, low in adapter.items():
        merged[f"{module}.weight"] = merged[f"{module}.weight"] + low.scaling * low.b @ low.a
    np.testing.assert_allclose(
        prompt_logprobs(settings, weights, adapter, PROMPT),
        prompt_logprobs(settings, merged, {}, PROMPT),
        rtol=0,
        atol=1e-12,
    )


def test_scalings_are_read_as_alpha_over_rank(model: Path) -> None:
    for name, scaling in (("adapter-0", 1.625), ("adapter-1", 1.375)):
        adapter = read_adapter(model / "adapters" / name)
        assert len(adapter) == 14
        assert {low.scaling for low in adapter.values()} == {scaling}


def test_positions_matter(model: Path) -> None:
    """With the base of the rotation changed, answers move: positions do reach attention."""
    settings, weights = read_model(model)
    turned = replace(settings, rope_theta=1e6)
    moved = np.abs(prompt_logprobs(turned, weights, {}, PROMPT) - prompt_logprobs(settings, weights, {}, PROMPT))
    assert moved[1:].max() > 1e-3


def test_the_oracle_keeps_identities_apart(model: Path) -> None:
    oracle = LogprobOracle(model, {name: model / "adapters" / name for name in ("adapter-0", "adapter-1")})
    answers = [oracle.logprobs(PROMPT, identity) for identity in (None, "adapter-0", "adapter-1", None)]
    assert np.array_equal(answers[0], answers[3])
    for left, right in ((0, 1), (0, 2), (1, 2)):
        assert np.mean(0.5 * (answers[left] - answers[right]) ** 2) > 0.05
