"""Mixed batches against engines that are right, or that mix rows up in one way each. The reference is the float64 oracle."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from kit.check_spec import BatchInvariance, MixedBatch, MixedBatches
from kit.checks import mixed_batches
from kit.checks.outcome import CheckResult
from kit.oracles.reference import LogprobOracle
from kit.subjects.sglang_engine import Served, Whole

ADAPTERS = ("adapter-0", "adapter-1", "embedding", "lm-head")
COMPOSITION = ("adapter-0", None, "adapter-1", "adapter-0", None)
LENGTHS = (9, 12, 10, 11, 1)
NOISE = 4e-7

Identities = Sequence[str | None]
Carried = Callable[[Identities, Identities], Identities]
"""What the rows of a batch are answered as: from their own identities, and from those of the batch before."""


def batch(composition: Identities = COMPOSITION, new: int = 2) -> MixedBatch:
    rows = len(composition)
    return MixedBatch(composition=composition, prompt_lengths=LENGTHS[:rows], new_tokens=(new,) * rows)


def spec(*batches: MixedBatch, alone: str = "same-request") -> MixedBatches:
    return MixedBatches.model_validate({"batches": batches or (batch(),), "alone": alone, "seed": 1})


@pytest.fixture(scope="module")
def oracle(assets: Path) -> LogprobOracle:
    model = assets / "tiny-qwen3"
    return LogprobOracle(model, {name: model / "adapters" / name for name in ADAPTERS})


@dataclass
class Engine:
    """Stands for a served model.

    Attributes:
        carried: applied to batches of several rows; a request alone is answered right.
        change: of the answers of a batch of several rows. choice: rank of the token that it goes on with in them.
    """

    oracle: LogprobOracle
    carried: Carried = lambda own, before: own
    change: Callable[[list[Whole]], list[Whole]] = lambda answers: answers
    choice: int = 0
    noise: float = NOISE
    left_over: dict[str, str] = field(default_factory=dict)
    vocabulary: int = 2047
    explains: bool = True
    session: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(dtype="float32", engine={}))
    first: dict = field(default_factory=dict)
    _before: Identities = ()
    sent: list[int] = field(default_factory=list)

    @property
    def peer(self) -> SimpleNamespace:
        return SimpleNamespace(logprobs=lambda text, identity: self._noisy(self.oracle.logprobs(text, identity), 9))

    def alone(self, prompts: Sequence[Sequence[int]], identity: str | None) -> list[Served]:
        return [Served(self._noisy(self.oracle.logprobs(p, identity), 5), tuple(p[1:])) for p in prompts]

    def whole(self, prompts: Sequence[Sequence[int]], identities: Identities, new_tokens: Sequence[int]) -> list[Whole]:
        self.sent.append(len(prompts))
        if len(prompts) == 1:
            return [self._answer(prompts[0], identities[0], new_tokens[0], 0)]
        served = self.carried(identities, self._before)
        self._before = identities
        rows = zip(prompts, served, new_tokens, strict=True)
        return self.change([self._answer(prompt, who, new, self.choice) for prompt, who, new in rows])

    def whole_at_first(self, prompt: Sequence[int], identity: str | None, new_tokens: int) -> Whole:
        key = (identity, tuple(prompt), new_tokens)
        if key not in self.first:
            (self.first[key],) = self.whole([prompt], [identity], [new_tokens])
        return self.first[key]

    def _answer(self, prompt: Sequence[int], identity: str | None, new_tokens: int, choice: int) -> Whole:
        text = list(prompt)
        for _ in range(new_tokens):
            text.append(int(np.argsort(-self.oracle.next_logprobs(text, identity)[-1])[choice]))
        values = self.oracle.logprobs(text, identity)
        if identity in self.left_over:
            other, own = self.oracle.adapters[self.left_over[identity]], self.oracle.adapters[identity]
            left = {name: replace(low, scaling=12 / 8) for name, low in other.items()}  # alpha / rank of "embedding"
            values = self.oracle.supposing({**left, **own}, text)
        return Whole(self._noisy(values, 3), tuple(text[1:]))

    def _noisy(self, values: np.ndarray, seed: int) -> np.ndarray:
        return values + self.noise * np.random.Generator(np.random.Philox(key=seed)).normal(size=len(values))


def red(result: CheckResult) -> set[str]:
    return {m.name for m in result.measurements if not m.within}


def red_rows(result: CheckResult) -> list[tuple[int, int]]:
    return [(row["batch"], row["row"]) for row in result.evidence.get("red_rows", [])]


def most_error(result: CheckResult) -> float:
    return next(m.limit for m in result.measurements if m.name == "max_abs_error")


def said(result: CheckResult) -> str:
    return result.evidence["explanation"]["says"]


@pytest.mark.parametrize("alone", ["same-request", "as-prompt"])
def test_an_engine_that_is_right_is_green(oracle: LogprobOracle, alone: str) -> None:
    result = mixed_batches.check(
        spec(batch(), batch(COMPOSITION[::-1]), batch((None,), 1), alone=alone), Engine(oracle)
    )
    assert red(result) == set()
    assert "explanation" not in result.evidence and "red_rows" not in result.evidence
    assert [b["red"] for b in result.evidence["batches"]] == ["none"] * 3
    assert result.evidence["batches"][0]["identities"] == "adapter-0 base adapter-1 adapter-0 base"


def test_two_swapped_rows_are_red_and_named_with_whose_identity_they_carry(oracle: LogprobOracle) -> None:
    def swapped(own: Identities, before: Identities) -> Identities:
        return (own[0], own[2], own[1], *own[3:])

    result = mixed_batches.check(spec(), Engine(oracle, swapped))
    assert red(result) >= {"red_rows", "max_abs_error", "mean_half_square", "max_abs_to_solo"}
    assert red_rows(result) == [(0, 1), (0, 2)]
    (told,) = [m for m in result.measurements if m.name == "red_rows"]
    one, other = told.where.removesuffix(f"; permitted {most_error(result):.2g} nat").split("; ")
    for place, row in ((one, result.evidence["red_rows"][0]), (other, result.evidence["red_rows"][1])):
        name = f"batch 0 row {row['row']} ({row['identity']}), token "
        assert re.fullmatch(re.escape(name) + r"\d+: -[\d.]+, by the oracle -[\d.]+", place)
    worst = result.evidence["worst"]
    assert f"token {worst['position']}: {worst['served']:.6g}, by the oracle {worst['oracle']:.6g}" in told.where
    first, second = result.evidence["red_rows"]
    assert first["says"] == "it carries the values of adapter-1 (identity of row 2 of its batch)"
    assert second["says"] == "it carries the values of the base model (identity of row 1, 4 of its batch)"
    assert first["positions"].startswith("13 of 13: 1 2 3")
    assert result.evidence["batches"][0]["red"] == "1 2"


def test_base_rows_with_adapter_0_are_red_even_where_they_are_short(oracle: LogprobOracle) -> None:
    def adapted(own: Identities, before: Identities) -> Identities:
        return [identity or "adapter-0" for identity in own]

    result = mixed_batches.check(spec(), Engine(oracle, adapted))
    assert red_rows(result) == [(0, 1), (0, 4)]
    one = "it carries the values of adapter-0 (identity of row 0, 3 of its batch)"
    assert [row["says"] for row in result.evidence["red_rows"]] == [one, f"{one}, by 2 values"]
    assert said(result).startswith("2 of 5 rows are red")


def test_an_adapter_of_the_batch_before_is_named_as_such(oracle: LogprobOracle) -> None:
    def stale(own: Identities, before: Identities) -> Identities:
        return [before[row] if row < len(before) else identity for row, identity in enumerate(own)]

    first, second = ("adapter-0", "adapter-0", "adapter-1"), (None, None, "adapter-1")
    result = mixed_batches.check(spec(batch(first), batch(second)), Engine(oracle, stale))
    assert red_rows(result) == [(1, 0), (1, 1)]
    assert {row["says"] for row in result.evidence["red_rows"]} == {
        "it carries the values of adapter-0 (identity of this row in the batch before)"
    }


def test_an_adapter_that_a_batch_of_many_leaves_out_is_named(oracle: LogprobOracle) -> None:
    def skipped(own: Identities, before: Identities) -> Identities:
        return [None if identity == "adapter-1" and len(set(own)) > 2 else identity for identity in own]

    result = mixed_batches.check(spec(batch(("adapter-1", None)), batch()), Engine(oracle, skipped))
    assert red_rows(result) == [(1, 2)]
    assert "the base model (identity of row 1, 4 of its batch)" in said(result)


def test_what_stayed_in_a_slot_is_named(oracle: LogprobOracle) -> None:
    """docs/findings/0050."""
    engine = Engine(oracle, left_over={"embedding": "lm-head"})
    result = mixed_batches.check(spec(batch(("embedding", None, "lm-head"))), engine)
    assert red_rows(result) == [(0, 0)]
    assert result.evidence["red_rows"][0]["says"] == "it carries its own adapter and what lm-head has on lm_head"


def test_values_of_another_row_are_named_as_such(oracle: LogprobOracle) -> None:
    def rotated(answers: list[Whole]) -> list[Whole]:
        values = [answer.logprobs for answer in answers]
        values = [values[0], values[2], values[1], *values[3:]]
        fitted = (np.resize(v, len(a.logprobs)) for v, a in zip(values, answers, strict=True))
        return [Whole(v, a.tokens) for v, a in zip(fitted, answers, strict=True)]

    result = mixed_batches.check(spec(), Engine(oracle, change=rotated))
    assert red_rows(result) == [(0, 1), (0, 2)]
    assert result.evidence["red_rows"][1]["says"] == "it carries the values of row 1, another text"


def test_one_wrong_position_names_its_row_and_place(oracle: LogprobOracle) -> None:
    def off(answers: list[Whole]) -> list[Whole]:
        values = answers[3].logprobs.copy()
        values[6] += 1e-4
        return [*answers[:3], Whole(values, answers[3].tokens), *answers[4:]]

    result = mixed_batches.check(spec(), Engine(oracle, change=off))
    assert red(result) >= {"red_rows", "max_abs_error", "max_abs_to_solo"} and red_rows(result) == [(0, 3)]
    assert result.evidence["red_rows"][0]["positions"] == "1 of 12: 7"
    worst = result.evidence["worst"]
    assert (worst["row"], worst["position"], worst["identity"]) == (3, 7, "adapter-0")
    assert worst["served"] == pytest.approx(worst["alone"] + 1e-4, abs=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_is_red_and_named(oracle: LogprobOracle, value: float) -> None:
    def broken(answers: list[Whole]) -> list[Whole]:
        values = answers[2].logprobs.copy()
        values[-1] = value
        return [*answers[:2], Whole(values, answers[2].tokens), *answers[3:]]

    result = mixed_batches.check(spec(), Engine(oracle, change=broken))
    assert red(result) >= {"red_rows", "non_finite", "max_abs_error", "mean_half_square", "upstream_kl"}
    assert red_rows(result) == [(0, 2)]


def test_answers_that_are_too_short_or_about_other_tokens_are_red(oracle: LogprobOracle) -> None:
    def cut(answers: list[Whole]) -> list[Whole]:
        tokens = (7, *answers[1].tokens[1:])
        short = Whole(answers[0].logprobs[:-1], answers[0].tokens[:-1])
        return [short, Whole(answers[1].logprobs, tokens), *answers[2:]]

    result = mixed_batches.check(spec(), Engine(oracle, change=cut))
    assert red(result) == {"red_rows", "wrong_tokens", "missing_tokens"}
    assert red_rows(result) == [(0, 0), (0, 1)]


def test_second_best_tokens_are_red_though_their_logprobs_are_right(oracle: LogprobOracle) -> None:
    result = mixed_batches.check(spec(), Engine(oracle, choice=1))
    assert red(result) == {"red_rows", "best_choice_gap"}
    assert len(red_rows(result)) == len(COMPOSITION)


def test_rows_are_asked_alone_after_all_batches_and_once_if_they_are_alike(oracle: LogprobOracle) -> None:
    engine = Engine(oracle)
    mixed_batches.check(spec(batch(), batch(), batch(COMPOSITION[:2])), engine)
    assert engine.sent == [5, 5, 2, 1, 1, 1, 1, 1]


def test_a_case_that_judges_few_values_calibrates_with_all_of_them(oracle: LogprobOracle) -> None:
    """20 seeds of noise as large as the peer's: single values are no reason for an alarm."""
    few = spec(MixedBatch(composition=(None,) * 3, prompt_lengths=(1, 1, 12), new_tokens=(1, 1, 1)))
    for seed in range(20):
        engine = Engine(oracle, noise=NOISE * (1.0 + seed / 40))
        assert red(mixed_batches.check(few, engine)) == set()


def invariant(exact: bool) -> BatchInvariance:
    first = batch(("adapter-1",), 4)
    rest = [batch(("adapter-1", *COMPOSITION[1:rows]), 4) for rows in (2, 4)]
    return BatchInvariance(batches=(first, *rest), exact=exact, seed=1)


def moved_by(change: float) -> Callable[[list[Whole]], list[Whole]]:
    def move(answers: list[Whole]) -> list[Whole]:
        values = answers[0].logprobs.copy()
        values[2:4] = values[2:4] * (1 + change)
        return [Whole(values, answers[0].tokens), *answers[1:]]

    return move


def value(result: CheckResult, name: str) -> float:
    return next(m.value for m in result.measurements if m.name == name)


def test_invariance_is_reported_for_every_size_and_judged_only_where_it_is_promised(oracle: LogprobOracle) -> None:
    engine = Engine(oracle, change=moved_by(3e-8))
    for exact, expected in (
        (False, set()),
        (True, {"positions_not_bitwise_equal_in_2_rows", "positions_not_bitwise_equal_in_4_rows"}),
    ):
        result = mixed_batches.check_invariance(invariant(exact), engine)
        assert red(result) == expected
        for rows in (2, 4):
            assert value(result, f"positions_not_bitwise_equal_in_{rows}_rows") == 2
            assert 0 < value(result, f"max_abs_to_alone_in_{rows}_rows") < 1e-6
    assert red(mixed_batches.check_invariance(invariant(True), Engine(oracle))) == set()


def test_a_first_row_that_is_wrong_in_a_larger_batch_is_red_though_nothing_is_promised(oracle: LogprobOracle) -> None:
    result = mixed_batches.check_invariance(invariant(False), Engine(oracle, change=moved_by(1e-4)))
    assert red(result) >= {"red_rows", "max_abs_error"} and red_rows(result) == [(1, 0), (2, 0)]


def test_going_on_with_other_tokens_counts_as_moved(oracle: LogprobOracle) -> None:
    result = mixed_batches.check_invariance(invariant(True), Engine(oracle, choice=1))
    assert value(result, "positions_not_bitwise_equal_in_2_rows") == 4


def test_a_batch_must_say_all_of_every_row() -> None:
    with pytest.raises(ValueError, match="for every row"):
        MixedBatch(composition=(None, None), prompt_lengths=(1,), new_tokens=(1, 1))
    with pytest.raises(ValueError, match="begin with it"):
        BatchInvariance(batches=(batch((None,)), batch(("adapter-0", None))), exact=False, seed=1)
