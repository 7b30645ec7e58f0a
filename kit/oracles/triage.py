"""Why a greedy text is not the reference's: a near tie, a reference that drifts with its batch size, or the subject's fault.

Pure judgement on recorded facts, without torch: the worker measures and judges, and ``kit triage`` judges again what a run left.

The noise floor is measured in the same run. Along the subject's text, plain transformers (the peer) computes the logprobs of its
own two best tokens and of the subject's at every new token, for every batch size of the sweep. E is the larger of two numbers:
the largest change of one of them from batch size 1 to another, and, where there is an oracle, the largest error at batch size 1.
u is one unit in the last place of the dtype at the largest of the peer's logits for these tokens. A correct engine may be off by
2E + u (the peer rule, docs/limits.md), and it prefers a worse token only where the errors of two logprobs exceed their gap, so the
floor is 2 (2E + u). That holds for every pair of tokens, so three or more may tie, as they do in bfloat16.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Final, Self

from pydantic import Field, model_validator

from kit.measurement import Record

BATCH_SIZES: Final = tuple(range(1, 17))
"""Of the sweep, as upstream's maintainers swept it (sglang pull request 38585)."""
MOST_GAP: Final = 1.0
"""nat: a token that is e times as likely as another is no tie, whatever the noise; a larger gap is always a fault."""
BEYOND: Final = 4.0
"""Noise floors: a reference that is so far from a token writes it in no batch."""
NONE: Final = -1
"""In the place of a token: the text has ended."""


class Verdict(StrEnum):
    """What a difference of two texts comes from."""

    NEAR_TIE = "near tie"
    DRIFT = "reference drift"
    FAULT = "subject fault"


class Choice(Record):
    """A token, and its logprob in nat."""

    token: int
    logprob: float


class Opinion(Record):
    """What one computation says of the next token at one place.

    Attributes:
        who: ``subject``, ``peer`` or ``oracle``.
        best, second: its two most likely tokens.
        subject, reference: logprobs of the two candidates, nat; NaN where it does not tell, since it has likelier tokens.
    """

    who: str
    best: Choice
    second: Choice
    subject: float
    reference: float

    @property
    def gap(self) -> float:
        """|logprob of one candidate − of the other|, nat; NaN where one is not known."""
        return abs(self.subject - self.reference)

    @property
    def behind(self) -> float:
        """How far the worse candidate lies behind the most likely token, nat: the gap, unless a third token is likelier than both.

        NaN where a candidate is not known.
        """
        known = not math.isnan(self.gap)
        return self.best.logprob - min(self.subject, self.reference) if known else math.nan


class Departure(Record):
    """A place where the subject's text is not what the reference would write after the same tokens.

    Attributes:
        position: 0-based, among the new tokens.
        subject, reference: the candidates: token of the subject, and of the reference; `NONE` where a text has ended.
        subject_text, reference_text: the same as text.
        opinions: of all who were asked.
    """

    position: int = Field(ge=0)
    subject: int
    reference: int
    subject_text: str = ""
    reference_text: str = ""
    opinions: tuple[Opinion, ...] = Field(min_length=2)

    @property
    def gap(self) -> float:
        """The largest gap of all opinions, nat; NaN where one is NaN."""
        return _largest([opinion.gap for opinion in self.opinions])

    @property
    def behind(self) -> float:
        """How far a candidate lies behind the most likely token at most, by any opinion, nat; NaN where one is NaN."""
        return _largest([opinion.behind for opinion in self.opinions])


class Variant(Record):
    """What the reference writes in batches of these sizes."""

    sizes: tuple[int, ...] = Field(min_length=1)
    tokens: tuple[int, ...]


class Noise(Record):
    """Of the peer along the subject's text, nat; see the module.

    Attributes:
        batch: largest change with the batch size. oracle: largest error to the oracle; None where there is none.
        unit: one unit in the last place of the dtype at the largest logit.
    """

    batch: float
    oracle: float | None
    unit: float

    @property
    def floor(self) -> float:
        """2 (2E + u), nat; NaN where a part is NaN."""
        parts = [self.batch, *([] if self.oracle is None else [self.oracle]), self.unit]
        return math.nan if any(math.isnan(part) for part in parts) else 2.0 * (2.0 * max(parts[:-1]) + self.unit)


class TextDifference(Record):
    """All that is known of one row whose text is not the reference's.

    Attributes:
        row: in words, such as ``row 1 of base, adapter-0, base``.
        subject: its new tokens. variants: of the reference; one of them has batch size 1, which is the one compared with.
        departures: the first difference from that one, and every later place at which the peer would not go on as the subject did.
        noise: of the peer.
    """

    row: str
    subject: tuple[int, ...]
    variants: tuple[Variant, ...] = Field(min_length=1)
    departures: tuple[Departure, ...] = Field(min_length=1)
    noise: Noise

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        sizes = [size for variant in self.variants for size in variant.sizes]
        if len(set(sizes)) != len(sizes) or 1 not in sizes:
            raise ValueError("every batch size has one variant, and 1 is among them")
        place = first_difference(self.subject, self.reference)
        if place is None:
            raise ValueError("the texts are the same")
        first = self.departures[0]
        if (first.position, first.subject, first.reference) != (
            place,
            token_at(self.subject, place),
            token_at(self.reference, place),
        ):
            raise ValueError("the first departure is not the first difference of the texts")
        if any(d.subject != token_at(self.subject, d.position) for d in self.departures):
            raise ValueError("a departure is not from the subject's text")
        return self

    @property
    def reference(self) -> tuple[int, ...]:
        """What the reference writes at batch size 1."""
        return next(variant.tokens for variant in self.variants if 1 in variant.sizes)


class Judgement(Record):
    """A verdict and why, in one sentence."""

    verdict: Verdict
    reason: str


def judge(found: TextDifference) -> Judgement:
    """The verdict on one row. Whatever is NaN or wider than `MOST_GAP` is the subject's fault.

    `reference drift`: the reference changes with the batch size, and the whole of the subject's text is one of its variants.
    `near tie`: at every departure, for all who were asked, both candidates lie behind the most likely token by less than the floor:
    they are the top two, or tie with them.
    """
    widest = max(found.departures, key=lambda d: math.inf if math.isnan(d.gap) else d.gap)
    where = f"token {widest.position}"
    if math.isnan(widest.gap):
        return _fault(f"at {where} a candidate is unknown, NaN, or beyond the likeliest tokens")
    if widest.gap > MOST_GAP:
        return _fault(f"at {where} the candidates are {widest.gap:.3g} nat apart; above {MOST_GAP:g} nothing excuses")
    same = [variant for variant in found.variants if variant.tokens == found.subject]
    if same:
        sizes = ", ".join(map(str, same[0].sizes))
        return Judgement(
            verdict=Verdict.DRIFT,
            reason=f"the reference writes another text from token {found.departures[0].position} on with its batch size, "
            f"and the subject's text is the one of batch size {sizes}; the candidates are {widest.gap:.3g} nat apart",
        )
    floor = found.noise.floor
    worst = max(found.departures, key=lambda d: math.inf if math.isnan(d.behind) else d.behind)
    if not worst.behind < floor:
        return _fault(
            f"at token {worst.position} the candidates are {worst.gap:.3g} nat apart and one is {worst.behind:.3g} nat behind the "
            f"likeliest token; the noise floor is {floor:.3g}"
        )
    return Judgement(
        verdict=Verdict.NEAR_TIE,
        reason=f"at token {worst.position} the candidates are {worst.gap:.3g} nat apart and within {worst.behind:.3g} nat of the "
        f"likeliest token, below the noise floor of {floor:.3g}",
    )


def beyond_excuse(departures: Sequence[Departure], noise: Noise) -> bool:
    """Whether nothing that the reference writes in another batch could excuse a departure, so that it need not be asked.

    Either `judge` takes no excuse, or the reference itself, along the subject's text, is `BEYOND` noise floors from the subject's
    token: sixteen times what its logprobs move by with the batch size, so it goes on with that token in no batch.
    """
    reference = [opinion for departure in departures for opinion in departure.opinions if opinion.who == "peer"]
    return any(not departure.gap <= MOST_GAP for departure in departures) or any(
        opinion.best.logprob - opinion.subject >= BEYOND * noise.floor for opinion in reference
    )


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """0-based place of the first difference, where a text that has ended differs from one that goes on; None where they are equal."""
    pairs = enumerate(zip_longest(left, right))
    return next((place for place, (one, other) in pairs if one != other), None)


def token_at(text: Sequence[int], place: int) -> int:
    """The token, or `NONE` behind the end."""
    return text[place] if place < len(text) else NONE


def _largest(values: Sequence[float]) -> float:
    return math.nan if any(math.isnan(value) for value in values) else max(values)


def _fault(reason: str) -> Judgement:
    return Judgement(verdict=Verdict.FAULT, reason=reason)
