"""The LoRA checks against engines that are right, or wrong in one way each. The reference is the float64 oracle."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from kit.check_spec import GivenPrompt, PromptLogprobs
from kit.checks import prompt_logprobs
from kit.checks.outcome import CheckResult
from kit.oracles.reference import LogprobOracle
from kit.results.plain import in_words
from kit.subjects.sglang_engine import Served

NAMES = ("adapter-0", "adapter-1")
NOISE = 5e-7
BASE = PromptLogprobs(adapter=None, prompt_lengths=(9, 17), seed=1)
ADAPTED = PromptLogprobs(adapter="adapter-1", prompt_lengths=(9, 17), seed=1)

Answer = Callable[[Sequence[int], str | None], Served]


@pytest.fixture(scope="module")
def oracle(assets: Path) -> LogprobOracle:
    model = assets / "tiny-qwen3"
    return LogprobOracle(model, {name: model / "adapters" / name for name in NAMES})


def rounded(oracle: LogprobOracle, seed: int) -> Answer:
    """A correct float32 engine: the oracle's values with noise of a typical size."""
    random = np.random.Generator(np.random.Philox(key=seed))

    def answer(prompt: Sequence[int], identity: str | None) -> Served:
        values = oracle.logprobs(prompt, identity)
        return Served(values + NOISE * random.normal(size=len(values)), tuple(prompt[1:]))

    return answer


class Engine:
    """Stands for a served model."""

    vocabulary = 2047
    session = SimpleNamespace(dtype="float32")
    explains = True

    def __init__(self, oracle: LogprobOracle, single: Answer) -> None:
        honest = rounded(oracle, seed=9)
        self.oracle = oracle
        self.peer = SimpleNamespace(logprobs=lambda prompt, identity: honest(prompt, identity).logprobs)
        self._single = single

    def alone(self, prompts: Sequence[Sequence[int]], identity: str | None) -> list[Served]:
        return [self._single(prompt, identity) for prompt in prompts]

    at_first = alone


def red(result: CheckResult) -> set[str]:
    return {m.name for m in result.measurements if not m.within}


def test_a_correct_engine_is_green_everywhere(oracle: LogprobOracle) -> None:
    engine = Engine(oracle, rounded(oracle, seed=2))
    for spec in (BASE, ADAPTED):
        assert red(prompt_logprobs.check(spec, engine)) == set()


def changed(oracle: LogprobOracle, change: Callable[[np.ndarray, str | None, Sequence[int]], np.ndarray]) -> Answer:
    honest = rounded(oracle, seed=3)

    def answer(prompt: Sequence[int], identity: str | None) -> Served:
        served = honest(prompt, identity)
        return Served(change(served.logprobs, identity, prompt), served.tokens)

    return answer


def one_value(value: float) -> Callable:
    def change(values: np.ndarray, identity: str | None, prompt: Sequence[int]) -> np.ndarray:
        return np.where(np.arange(len(values)) == 5, value, values)

    return change


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("spec", [BASE, ADAPTED])
def test_one_value_that_is_not_finite_is_red(oracle: LogprobOracle, spec: PromptLogprobs, value: float) -> None:
    result = prompt_logprobs.check(spec, Engine(oracle, changed(oracle, one_value(value))))
    assert red(result) >= {"non_finite", "max_abs_error", "mean_half_square", "upstream_kl"}
    assert result.evidence["worst"]["position"] == 6
    assert result.evidence["worst"]["served"] == str(value)


def test_a_token_id_that_is_reported_as_another_is_red_though_its_logprob_is_right(oracle: LogprobOracle) -> None:
    """docs/findings/0001."""
    honest = rounded(oracle, seed=2)

    def clipped(prompt: Sequence[int], identity: str | None) -> Served:
        served = honest(prompt, identity)
        return Served(served.logprobs, tuple(token if token < 2047 else 0 for token in served.tokens))

    spec = GivenPrompt(adapter=None, tokens=(0, 2047, 1, 2046, 2047))
    assert red(prompt_logprobs.check_given(spec, Engine(oracle, honest))) == set()
    result = prompt_logprobs.check_given(spec, Engine(oracle, clipped))
    assert red(result) == {"wrong_tokens"}
    assert (result.evidence["asked"], result.evidence["answered"]) == ([2047, 1, 2046, 2047], [0, 1, 2046, 0])


def test_one_shifted_position_is_red(oracle: LogprobOracle) -> None:
    def shift(values: np.ndarray, identity: str | None, prompt: Sequence[int]) -> np.ndarray:
        return np.concatenate([values[:4], values[5:6], values[5:]])

    result = prompt_logprobs.check(BASE, Engine(oracle, changed(oracle, shift)))
    assert red(result) >= {"max_abs_error", "mean_half_square"}


def test_a_missing_adapter_has_no_effect(oracle: LogprobOracle) -> None:
    honest = rounded(oracle, seed=4)
    engine = Engine(oracle, lambda prompt, identity: honest(prompt, None))
    assert red(prompt_logprobs.check(BASE, engine)) == set()
    everything = {"max_abs_error", "mean_half_square", "upstream_kl", "effect", "effect_slope_off_one"}
    result = prompt_logprobs.check(ADAPTED, engine)
    assert red(result) == everything
    assert in_words(result.measurements) == "the adapter has no or too little effect"


def test_another_adapters_effect_is_red(oracle: LogprobOracle) -> None:
    honest = rounded(oracle, seed=4)
    swapped = {None: None, "adapter-0": "adapter-1", "adapter-1": "adapter-0"}
    result = prompt_logprobs.check(ADAPTED, Engine(oracle, lambda prompt, who: honest(prompt, swapped[who])))
    assert red(result) >= {"max_abs_error", "mean_half_square", "effect_slope_off_one"}
    assert "not as this adapter should" in in_words(result.measurements)


def test_an_effect_that_is_a_tenth_too_large_is_red(oracle: LogprobOracle) -> None:
    def stronger(values: np.ndarray, identity: str | None, prompt: Sequence[int]) -> np.ndarray:
        return values + 0.1 * (oracle.logprobs(prompt, identity) - oracle.logprobs(prompt, None))

    engine = Engine(oracle, changed(oracle, stronger))
    result = prompt_logprobs.check(ADAPTED, engine)
    assert red(result) == {"max_abs_error", "mean_half_square", "effect_slope_off_one"}
    slope = next(m for m in result.measurements if m.name == "effect_slope_off_one")
    assert slope.value == pytest.approx(0.1, abs=1e-4)
    assert in_words(result.measurements) == "the adapter acts 1.10 times as strongly as it should"


def test_wrong_token_ids_are_red(oracle: LogprobOracle) -> None:
    honest = rounded(oracle, seed=6)

    def answer(prompt: Sequence[int], identity: str | None) -> Served:
        served = honest(prompt, identity)
        return Served(served.logprobs, (served.tokens[0] + 1, *served.tokens[1:]))

    assert red(prompt_logprobs.check(BASE, Engine(oracle, answer))) == {"wrong_tokens"}


@pytest.mark.parametrize("peer_error", [1e-3, np.nan, np.inf])
def test_a_peer_that_is_far_off_permits_nothing(oracle: LogprobOracle, peer_error: float) -> None:
    """Garbage in the peer must not turn into a loose limit that everything keeps."""
    engine = Engine(oracle, rounded(oracle, seed=2))
    engine.peer = SimpleNamespace(logprobs=lambda prompt, identity: oracle.logprobs(prompt, identity) + peer_error)
    assert "peer_rms_error" in red(prompt_logprobs.check(BASE, engine))


def test_a_red_case_says_which_fault_its_values_are_like(oracle: LogprobOracle) -> None:
    own = oracle.adapters["adapter-1"]
    doubled = {name: replace(low, scaling=2 * low.scaling) for name, low in own.items()}

    def answer(prompt: Sequence[int], identity: str | None) -> Served:
        values = oracle.supposing(doubled if identity == "adapter-1" else {}, prompt)
        return Served(values, tuple(prompt[1:]))

    told = prompt_logprobs.check(ADAPTED, Engine(oracle, answer)).evidence["explanation"]
    assert told["says"].endswith("its scaling doubled.")
    assert told["likeliest"][0]["fault"] == "its scaling doubled"
    assert told["likeliest"][0]["mean_half_square"] < 1e-10 < told["right"]
    assert len(told["likeliest"]) == 5


def test_a_green_case_explains_nothing(oracle: LogprobOracle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogprobOracle, "supposing", None)
    engine = Engine(oracle, rounded(oracle, seed=2))
    assert "explanation" not in prompt_logprobs.check(ADAPTED, engine).evidence
