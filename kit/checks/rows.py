"""Rows of batches in which several identities meet: each one held against the oracle, and against what it is alone."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

import numpy as np

from kit.check_spec import MixedBatch
from kit.measurement import Measurement
from kit.oracles import limits, metrics
from kit.oracles.limits import Dtype
from kit.oracles.metrics import Values
from kit.subjects.sglang_engine import Served, SGLangSubject, Whole
from kit.synthetic.prompts import prompts as seeded_prompts

_NAMED = 12
_DETAILED = 3
"""Red rows of which position and values are told in the measurement; all of them stand in the evidence."""


_LONGEST = 300
"""Characters of a list of rows in a measurement."""


@dataclass(frozen=True)
class Row:
    """One row of one batch: a prompt of n tokens and the m tokens with which the engine went on.

    Attributes:
        batch, row: places, from 0. identity: None is the base model.
        prompt_length, asked: n, and how many new tokens it should have been.
        text: prompt and new tokens.
        answer: the engine's. oracle, peer: of the same text: [n − 1 + m], nat.
        behind: by how much the oracle's best token beats each new one, nat.
        alone: the same tokens as the engine gives them to this row alone, as far as it goes on with the same ones; None where
            it was not asked.
    """

    batch: int
    row: int
    identity: str | None
    prompt_length: int
    asked: int
    text: tuple[int, ...]
    answer: Whole
    oracle: Values
    peer: Values
    behind: Values
    alone: Values | None = None

    @property
    def name(self) -> str:
        """For a person, such as ``batch 0 row 3 (adapter-1)``."""
        return f"batch {self.batch} row {self.row} ({self.identity or 'base'})"

    @property
    def place(self) -> str:
        """Where it is farthest from the oracle, such as ``batch 0 row 3 (adapter-1), token 7: -9.12, by the oracle -5.9``."""
        return f"{self.name}, {told_at(self.served, self.oracle)}" if self.served.size else self.name

    @property
    def served(self) -> Values:
        """Log-probabilities as the engine gave them in the batch: [n − 1 + m], nat."""
        return self.answer.logprobs

    @property
    def missing(self) -> int:
        """New tokens that the engine did not give."""
        return self.asked - (len(self.text) - self.prompt_length)

    @property
    def wrong_tokens(self) -> int:
        """Token ids that the engine reports for the prompt and that are others."""
        return sum(a != t for a, t in zip(self.answer.tokens, self.text[1:], strict=True))

    @property
    def error(self) -> float:
        """Largest |Δ| to the oracle, nat; 0 where there is no value."""
        return _largest(self.served - self.oracle)

    @property
    def half_square(self) -> float:
        """Mean ½Δ² to the oracle, nat²; 0 where there is no value."""
        return metrics.mean_half_square(self.served, self.oracle) if self.served.size else 0.0

    @property
    def gap(self) -> float:
        """By how much the oracle prefers another token to one that the engine chose, at most, nat."""
        return _largest(self.behind)

    @property
    def to_alone(self) -> float:
        """Largest |Δ| between batch and alone, nat; 0 where there is nothing to compare."""
        return 0.0 if self.alone is None else _largest(self.served[: len(self.alone)] - self.alone)

    @property
    def moved(self) -> int:
        """Positions that are not bitwise the same in the batch and alone."""
        return 0 if self.alone is None else int(np.count_nonzero(~(self.served[: len(self.alone)] == self.alone)))


@dataclass(frozen=True)
class Judged:
    """All rows of a case. What the peer may be off by is taken from all of them: a short row has too few values for that."""

    rows: Sequence[Row]
    dtype: Dtype

    @cached_property
    def calibration(self) -> Values:
        """The peer's error at every position of every row, nat."""
        return np.concatenate([row.peer - row.oracle for row in self.rows])

    @cached_property
    def magnitude(self) -> float:
        """Largest |logprob| of the oracle, nat."""
        return max(_largest(row.oracle) for row in self.rows)

    @cached_property
    def largest_error(self) -> Measurement:
        """The peer rule on the row that is farthest off at one position."""
        worst = max(self.rows, key=lambda row: _ranked(row.error))
        peer, error = metrics.largest(self.calibration), _ranked(worst.error)
        judged = limits.peer_max_abs("max_abs_error", error, peer, self.dtype, self.magnitude, "nat")
        return judged.model_copy(update={"where": worst.place})

    @cached_property
    def to_alone(self) -> Measurement:
        """The row whose values in the batch and alone are farthest apart: each may be off by what the largest error may be."""
        worst = max(self.rows, key=lambda row: _ranked(row.to_alone))
        judged = limits.two_answers("max_abs_to_solo", _ranked(worst.to_alone), self.largest_error)
        if worst.alone is None or not worst.alone.size:
            return judged
        place = told_at(worst.served[: len(worst.alone)], worst.alone, "alone")
        return judged.model_copy(update={"where": f"{worst.name}, {place}"})

    def half_square(self, row: Row) -> Measurement:
        """The peer rule on a row's mean ½Δ², with room for the few values of a short row (`limits.mean_of_few`)."""
        peer = metrics.mean_half_square(self.calibration)
        mean = limits.peer_mean_half_square("mean_half_square", row.half_square, peer, self.dtype, self.magnitude)
        judged = limits.mean_of_few(mean, len(row.served), self.largest_error)
        return judged.model_copy(update={"where": row.name})

    def red(self) -> list[Row]:
        """The rows that are wrong in whatever way."""
        return [row for row in self.rows if not self._right(row)]

    def _right(self, row: Row) -> bool:
        most = self.largest_error.limit or 0.0
        return (
            row.missing == row.wrong_tokens == 0
            and row.error <= most
            and row.to_alone <= 2.0 * most
            and row.gap <= 2.0 * most
            and self.half_square(row).within
        )

    def outside(self, row: Row) -> list[int]:
        """Places of the tokens in a row's text whose logprobs are farther off than any may be."""
        with np.errstate(all="ignore"):
            right = np.abs(row.served - row.oracle) <= (self.largest_error.limit or 0.0)
        return [int(place) + 1 for place in np.flatnonzero(~right)]

    def measurements(self) -> list[Measurement]:
        """The worst row by each rule, and how many rows are red, which are named."""
        served = np.concatenate([row.served for row in self.rows])
        joined = metrics.mean_half_square(served, np.concatenate([row.oracle for row in self.rows]))
        by_mean = [self.half_square(row) for row in self.rows]
        red = limits.exactly_none("red_rows", len(self.red()), f"of {len(self.rows)} rows")
        chosen = max(self.rows, key=lambda row: _ranked(row.gap))
        found = [
            red.model_copy(update={"where": self._told(self.red())}),
            self._counted("non_finite", lambda row: metrics.non_finite(row.served), "NaN or infinite logprobs"),
            self._counted("wrong_tokens", lambda row: row.wrong_tokens, "ids that are not the prompt's"),
            self._counted("missing_tokens", lambda row: row.missing, "tokens to generate"),
            self.largest_error,
            max(by_mean, key=lambda m: _ranked(m.value / m.limit if m.limit else m.value)),
            limits.best_choice(chosen.gap, self.largest_error).model_copy(update={"where": chosen.name}),
            limits.upstream_at_most("upstream_kl", joined, limits.UPSTREAM_KL, "nat²", "over all rows"),
            limits.sane_peer(metrics.rms(self.calibration), self.dtype, self.magnitude, "nat"),
        ]
        if any(row.alone is not None for row in self.rows):
            moved = sum(row.moved for row in self.rows)
            found += [self.to_alone, limits.context("positions_not_bitwise_equal_to_solo", float(moved), "count")]
        return found

    def _counted(self, name: str, of: Callable[[Row], int], note: str) -> Measurement:
        """What must not be in any row; the rows in which it is are named."""
        counts = [of(row) for row in self.rows]
        found = ", ".join(row.name for row, count in zip(self.rows, counts, strict=True) if count)
        return limits.exactly_none(name, sum(counts), note).model_copy(update={"where": found[:_LONGEST]})

    def _wrong_at(self, row: Row) -> str:
        """Where a red row is wrong: by the oracle, or, where it is right by that, alone."""
        alone, most = row.alone, self.largest_error.limit or 0.0
        if alone is not None and row.error <= most and not row.to_alone <= 2.0 * most:
            return f"{row.name}, {told_at(row.served[: len(alone)], alone, 'alone')}"
        return row.place

    def _told(self, red: Sequence[Row]) -> str:
        """Rows for a person: the first ones with position, value and what the oracle says, further ones by name."""
        if not red:
            return ""
        told = [self._wrong_at(row) for row in red[:_DETAILED]]
        if named := ", ".join(row.name for row in red[_DETAILED:_NAMED]):
            told.append(f"also {named}" + (f" and {len(red) - _NAMED} more" if red[_NAMED:] else ""))
        return f"{'; '.join(told)}; permitted {self.largest_error.limit:.2g} nat"


def told_at(served: Values, right: Values, by: str = "by the oracle", first: int = 1) -> str:
    """The place where values are farthest from the right ones, with both: ``token 7: -9.12, by the oracle -5.9``.

    Args:
        first: place in its text of the token that the first value is of.
    """
    worst = metrics.farthest(served, right)
    return f"token {worst + first}: {served[worst]:.6g}, {by} {right[worst]:.6g}"


def in_batches(subject: SGLangSubject, batches: Iterable[MixedBatch], seed: int) -> list[Row]:
    """Send every batch in one message, one after the other, and put oracle and peer beside each row."""
    asked = [(batch, seeded_prompts(batch.prompt_lengths, subject.vocabulary, seed)) for batch in batches]
    answers = [subject.whole(prompts, batch.composition, batch.new_tokens) for batch, prompts in asked]
    return [
        _row(subject, place, row, batch, prompts[row], answered[row])
        for place, ((batch, prompts), answered) in enumerate(zip(asked, answers, strict=True))
        for row in range(len(prompts))
    ]


def beside_same_request(subject: SGLangSubject, rows: Iterable[Row]) -> list[Row]:
    """The rows, each with what the engine answers to its request alone: asked once in a session for rows that are alike."""
    return [beside(row, subject.whole_at_first(row.text[: row.prompt_length], row.identity, row.asked)) for row in rows]


def beside_prompt(subject: SGLangSubject, rows: Iterable[Row]) -> list[Row]:
    """The rows, each with what the engine says of its whole text as a prompt, alone."""
    return [replace(row, alone=subject.alone([row.text], row.identity)[0].logprobs) for row in rows]


def beside(row: Row, alone: Served) -> Row:
    """A row with another answer to its request: as far as that goes on with the same tokens."""
    pairs = zip(alone.tokens[row.prompt_length - 1 :], row.text[row.prompt_length :], strict=False)
    same = row.prompt_length - 1 + len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return replace(row, alone=alone.logprobs[:same])


def _row(subject: SGLangSubject, batch: int, row: int, asked: MixedBatch, prompt: Sequence[int], answer: Whole) -> Row:
    identity = asked.composition[row]
    text = (*prompt, *answer.tokens[len(prompt) - 1 :])
    return Row(
        batch=batch,
        row=row,
        identity=identity,
        prompt_length=len(prompt),
        asked=asked.new_tokens[row],
        text=text,
        answer=answer,
        oracle=subject.oracle.logprobs(text, identity),
        peer=subject.peer.logprobs(text, identity),
        behind=subject.oracle.behind_best(text, identity)[len(prompt) - 1 :],
    )


def _largest(values: Values) -> float:
    return metrics.largest(values) if values.size else 0.0


def _ranked(value: float) -> float:
    """For `max`: NaN is worse than any number. It stays outside every limit as infinity."""
    return float("inf") if np.isnan(value) else value
