"""The checks of generated tokens against engines that are right, or wrong in one way each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from kit.check_spec import CacheReuse, DecodeLogprobs, Repeatability
from kit.checks import decode
from kit.checks.outcome import CheckResult
from kit.oracles.reference import LogprobOracle
from kit.subjects.sglang_engine import Generated, Served

NOISE = 5e-7
DECODE = DecodeLogprobs(adapter="adapter-1", prompt_length=5, new_tokens=8, seed=1)
AGAIN = Repeatability(adapter="adapter-0", times=20, prompt_length=5, new_tokens=3, seed=1)
CACHE = CacheReuse(adapter=None, prompt_length=9, new_tokens=3, seed=1)

Change = Callable[[Generated], Generated]


def same(answer: Generated) -> Generated:
    return answer


@pytest.fixture(scope="module")
def oracle(assets: Path) -> LogprobOracle:
    model = assets / "tiny-qwen3"
    return LogprobOracle(model, {name: model / "adapters" / name for name in ("adapter-0", "adapter-1")})


def noisy(values: np.ndarray, seed: int) -> np.ndarray:
    return values + NOISE * np.random.Generator(np.random.Philox(key=seed)).normal(size=len(values))


@dataclass
class Engine:
    """Stands for a served model.

    Attributes:
        served_as: which identity really answers. choice: rank of the token that it goes on with, 0 for the best.
        changes: what happens to the first, second, … generated answer. cached: cached tokens of each of them.
        prompt_error: added to the logprobs of prompts.
    """

    oracle: LogprobOracle
    served_as: Callable[[str | None], str | None] = lambda identity: identity
    choice: int = 0
    changes: Iterator[Change] = field(default_factory=lambda: repeat(same))
    cached: Iterator[int] = field(default_factory=lambda: repeat(0))
    prompt_error: float = 0.0
    vocabulary: int = 2047
    explains: bool = True
    session: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(dtype="float32"))

    @property
    def peer(self) -> SimpleNamespace:
        return SimpleNamespace(logprobs=lambda text, identity: noisy(self.oracle.logprobs(text, identity), seed=9))

    def alone(self, prompts: Sequence[Sequence[int]], identity: str | None) -> list[Served]:
        return [
            Served(
                noisy(self.oracle.logprobs(prompt, self.served_as(identity)), 2) + self.prompt_error, tuple(prompt[1:])
            )
            for prompt in prompts
        ]

    def generate(
        self, prompts: Sequence[Sequence[int]], identities: Sequence[str | None], new_tokens: int
    ) -> list[Generated]:
        return [self._goes_on(p, self.served_as(i), new_tokens) for p, i in zip(prompts, identities, strict=True)]

    def _goes_on(self, prompt: Sequence[int], identity: str | None, new_tokens: int) -> Generated:
        text, values = list(prompt), []
        for _ in range(new_tokens):
            following = self.oracle.next_logprobs(text, identity)[-1]
            token = int(np.argsort(-following)[self.choice])
            text.append(token)
            values.append(following[token])
        answer = Generated(noisy(np.array(values), 3), tuple(text[len(prompt) :]), cached=next(self.cached))
        return next(self.changes)(answer)


def red(result: CheckResult) -> set[str]:
    return {m.name for m in result.measurements if not m.within}


def value(result: CheckResult, name: str) -> float:
    return next(m.value for m in result.measurements if m.name == name)


def off_by(error: float, place: int) -> Change:
    def change(answer: Generated) -> Generated:
        values = answer.logprobs.copy()
        values[place] += error
        return replace(answer, logprobs=values)

    return change


def cut_to(count: int) -> Change:
    return lambda answer: replace(answer, logprobs=answer.logprobs[:count], tokens=answer.tokens[:count])


@pytest.mark.parametrize("prompt_length", [1, 5])
def test_a_correct_engine_is_green(oracle: LogprobOracle, prompt_length: int) -> None:
    spec = DECODE.model_copy(update={"prompt_length": prompt_length})
    result = decode.check_decode(spec, Engine(oracle))
    assert red(result) == set()
    assert len(result.evidence["generated"]) == 8
    assert red(decode.check_repeatability(AGAIN, Engine(oracle))) == set()
    assert red(decode.check_cache_reuse(CACHE, Engine(oracle, cached=iter([0, 8])))) == set()


def test_one_wrong_step_of_decode_is_red_though_the_prompt_route_is_right(oracle: LogprobOracle) -> None:
    result = decode.check_decode(DECODE, Engine(oracle, changes=iter([off_by(1e-3, place=6)])))
    assert red(result) == {"max_abs_error", "mean_half_square", "max_abs_to_prompt_route"}
    assert result.evidence["worst"]["position"] == 5 + 6


def test_a_prompt_route_that_disagrees_with_decode_is_red(oracle: LogprobOracle) -> None:
    result = decode.check_decode(DECODE, Engine(oracle, prompt_error=1e-3))
    assert red(result) == {"max_abs_to_prompt_route"}


def test_the_base_model_in_place_of_the_adapter_is_red(oracle: LogprobOracle) -> None:
    result = decode.check_decode(DECODE, Engine(oracle, served_as=lambda identity: None))
    assert red(result) >= {"max_abs_error", "mean_half_square", "best_choice_gap"}


def test_a_second_best_token_is_red_though_its_logprob_is_right(oracle: LogprobOracle) -> None:
    assert red(decode.check_decode(DECODE, Engine(oracle, choice=1))) == {"best_choice_gap"}


def test_nan_is_red(oracle: LogprobOracle) -> None:
    result = decode.check_decode(DECODE, Engine(oracle, changes=iter([off_by(np.nan, place=2)])))
    assert red(result) >= {"non_finite", "max_abs_error", "max_abs_to_prompt_route"}
    assert result.evidence["worst"]["position"] == 5 + 2


@pytest.mark.parametrize("count", [0, 3])
def test_too_few_tokens_are_red(oracle: LogprobOracle, count: int) -> None:
    for check, spec in (
        (decode.check_decode, DECODE),
        (decode.check_repeatability, AGAIN.model_copy(update={"new_tokens": 5})),
        (decode.check_cache_reuse, CACHE.model_copy(update={"new_tokens": 5})),
    ):
        engine = Engine(oracle, changes=repeat(cut_to(count)), cached=chain([0], repeat(8)))
        result = check(spec, engine)  # type: ignore[operator]
        assert red(result) == {"missing_tokens"}
        assert value(result, "missing_tokens") == spec.new_tokens - count


def test_one_bit_in_twenty_answers_is_red(oracle: LogprobOracle) -> None:
    def next_float(answer: Generated) -> Generated:
        values = answer.logprobs.copy()
        values[1] = np.nextafter(values[1], 0.0)
        return replace(answer, logprobs=values)

    changes = chain(repeat(same, 19), [next_float])
    result = decode.check_repeatability(AGAIN, Engine(oracle, changes=changes))
    assert red(result) == {"answers_unlike_the_first"}
    assert value(result, "answers_unlike_the_first") == 1


def test_a_cache_that_is_not_used_proves_nothing_and_is_red(oracle: LogprobOracle) -> None:
    assert red(decode.check_cache_reuse(CACHE, Engine(oracle, cached=repeat(0)))) == {"cached_tokens"}


def test_a_prompt_that_is_cached_before_it_was_sent_is_red(oracle: LogprobOracle) -> None:
    assert red(decode.check_cache_reuse(CACHE, Engine(oracle, cached=repeat(8)))) == {"cached_tokens_cold"}


def test_a_wrong_value_from_the_cache_is_red(oracle: LogprobOracle) -> None:
    engine = Engine(oracle, changes=iter([same, off_by(1e-3, place=0)]), cached=iter([0, 8]))
    assert red(decode.check_cache_reuse(CACHE, engine)) == {"max_abs_error", "mean_half_square", "max_abs_to_cold"}
