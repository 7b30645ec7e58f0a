"""Greedy texts against plain transformers, row by row; where one differs, why (`kit.oracles.triage`)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from kit.checks.outcome import CheckResult, shown
from kit.measurement import Comparison, LimitSource, Measurement
from kit.oracles import limits, metrics
from kit.oracles.metrics import Values
from kit.oracles.rouge import rouge_l
from kit.oracles.triage import (
    BATCH_SIZES,
    NONE,
    Choice,
    Departure,
    Judgement,
    Noise,
    Opinion,
    TextDifference,
    Variant,
    Verdict,
    beyond_excuse,
    first_difference,
    judge,
    token_at,
)
from kit.subjects.continued import Continued, TextSubject

_UNKNOWN = Choice(token=NONE, logprob=float("nan"))


@dataclass(frozen=True)
class Row:
    """One row of a batch, and what the engine made of it; `place` in words."""

    place: str
    identity: str | None
    prompt: tuple[int, ...]
    answer: Continued


@dataclass(frozen=True)
class _Compared:
    """`text` and `reference` are without white space around; `found` and `judged` only where they differ."""

    row: Row
    text: str
    reference: str
    found: TextDifference | None
    judged: Judgement | None

    @property
    def is_fault(self) -> bool:
        """Whether the difference is the subject's."""
        return self.judged is not None and self.judged.verdict is Verdict.FAULT

    @property
    def to_batch_of_one(self) -> float:
        """ROUGE-L to the reference as upstream has it."""
        return 1.0 if self.text == self.reference else rouge_l(self.text, self.reference)

    @property
    def score(self) -> float:
        """ROUGE-L to the reference that triage leaves: where the difference is no fault, the variant that the subject stays with."""
        explained = self.judged is not None and not self.is_fault
        return 1.0 if explained else self.to_batch_of_one


def compare_texts(subject: TextSubject, rows: Sequence[Row], new_tokens: int, least: float, note: str) -> CheckResult:
    """Every row's text against what transformers writes in a batch of one.

    Args:
        new_tokens: how many were asked for. least: of ROUGE-L. note: which upstream test sets it.
    """
    compared = [_compare(subject, row, new_tokens) for row in rows]
    differing = [one for one in compared if one.judged is not None]
    faults = [f"{one.row.place}: {one.judged.reason}" for one in differing if one.judged and one.is_fault]
    other = "; ".join(f"{one.row.place}: {one.judged.verdict}, {one.judged.reason}" for one in differing if one.judged)
    missing = sum(new_tokens - len(row.answer.tokens) for row in rows)
    broken = sum(metrics.non_finite(row.answer.logprobs) for row in rows)
    measurements = [
        limits.exactly_none("missing_tokens", missing, f"of {new_tokens * len(rows)} tokens to generate"),
        limits.exactly_none("non_finite", broken, "NaN or infinite logprobs"),
        limits.exactly_none("subject_faults", len(faults), "; ".join(faults) or "texts that nothing excuses"),
        Measurement(
            name="rouge_l",
            value=min(one.score for one in compared),
            comparison=Comparison.AT_LEAST,
            limit=least,
            source=LimitSource.UPSTREAM,
            note=other or note,
        ),
        limits.context(
            "rouge_l_to_batch_of_one", min(one.to_batch_of_one for one in compared), "1", "as upstream has it"
        ),
        limits.context("differing_texts", float(len(differing)), "count", f"of {len(rows)}"),
    ]
    return CheckResult(tuple(measurements), {"texts_compared": len(rows)} | _evidence(differing))


def _compare(subject: TextSubject, row: Row, new_tokens: int) -> _Compared:
    def reference(size: int) -> tuple[int, ...]:
        return ended(subject.peer.greedy(row.prompt, row.identity, new_tokens, size), subject.ends)

    own, other = ended(row.answer.tokens, subject.ends), reference(1)
    text, reference_text = subject.text(own), subject.text(other)
    if text == reference_text or not own:  # no token at all is measured as missing
        return _Compared(row, text, reference_text, None, None)
    found = _Difference(subject, row, own, other).found(reference)
    return _Compared(row, text, reference_text, found, judge(found))


def ended(tokens: Sequence[int], ends: frozenset[int]) -> tuple[int, ...]:
    """The tokens up to and with the first that ends a text."""
    last = next((place for place, token in enumerate(tokens) if token in ends), len(tokens))
    return tuple(tokens[: last + 1])


@dataclass(frozen=True)
class _Difference:
    """A text that is not the reference's, looked at along its own tokens."""

    subject: TextSubject
    row: Row
    own: tuple[int, ...]
    other: tuple[int, ...]

    def found(self, reference: Callable[[int], tuple[int, ...]]) -> TextDifference:
        """All that is known of it; `reference` writes the text in a batch of so many rows, and is asked where that could excuse it."""
        first = first_difference(self.own, self.other)
        assert first is not None
        logits = self._logits(1)
        peer = _log_softmax(logits)
        oracle = self._oracle()
        departures = [self._departure(first, token_at(self.other, first), peer, oracle)]
        for place, token in enumerate(self.own):
            best = int(np.argmax(peer[place]))
            if place > first and best != token:
                departures.append(self._departure(place, best, peer, oracle))
        noise = self._noise(logits, peer, oracle)
        sizes = BATCH_SIZES[:1] if beyond_excuse(departures, noise) else BATCH_SIZES
        by_text: dict[tuple[int, ...], list[int]] = {}
        for size in sizes:
            by_text.setdefault(self.other if size == 1 else reference(size), []).append(size)
        return TextDifference(
            row=self.row.place,
            subject=self.own,
            variants=tuple(Variant(sizes=tuple(sizes), tokens=tokens) for tokens, sizes in by_text.items()),
            departures=tuple(departures),
            noise=noise,
        )

    def _logits(self, rows: int) -> Values:
        """[m + 1, vocabulary]: before each new token of the subject's text, and behind the last."""
        return self.subject.peer.last_logits([*self.row.prompt, *self.own], self.row.identity, len(self.own) + 1, rows)

    def _oracle(self) -> Values | None:
        if self.subject.oracle is None:
            return None
        text = [*self.row.prompt, *self.own]
        return self.subject.oracle.next_logprobs(text, self.row.identity)[-len(self.own) - 1 :]

    def _departure(self, place: int, reference: int, peer: Values, oracle: Values | None) -> Departure:
        token = token_at(self.own, place)
        opinions = [self._own_opinion(place, reference), _opinion("peer", peer[place], token, reference)]
        if oracle is not None:
            opinions.append(_opinion("oracle", oracle[place], token, reference))
        return Departure(
            position=place,
            subject=token,
            reference=reference,
            subject_text=self._text(token),
            reference_text=self._text(reference),
            opinions=tuple(opinions),
        )

    def _text(self, token: int) -> str:
        return "" if token == NONE else self.subject.text((token,))

    def _own_opinion(self, place: int, reference: int) -> Opinion:
        answer = self.row.answer
        told = answer.top[place] if place < len(answer.top) else ()
        best, second = (*told, _UNKNOWN, _UNKNOWN)[:2]
        known = {choice.token: choice.logprob for choice in told}
        own = float(answer.logprobs[place]) if place < len(answer.logprobs) else float("nan")
        return Opinion(
            who="subject", best=best, second=second, subject=own, reference=known.get(reference, float("nan"))
        )

    def _noise(self, logits: Values, peer: Values, oracle: Values | None) -> Noise:
        count = len(self.own)
        judged = np.concatenate([np.argsort(-peer[:count])[:, :2], np.array(self.own)[:, None]], axis=1)

        def of(values: Values) -> Values:
            return np.take_along_axis(values[:count], judged, axis=1)

        alone = of(peer)
        changes = [metrics.max_abs(of(_log_softmax(self._logits(size))), alone) for size in BATCH_SIZES[1:]]
        return Noise(
            batch=float(np.max(changes)),
            oracle=None if oracle is None else metrics.max_abs(alone, of(oracle)),
            unit=limits.unit_in_last_place(self.subject.dtype, metrics.largest(of(logits))),
        )


def _opinion(who: str, logprobs: Values, subject: int, reference: int) -> Opinion:
    best, second = (Choice(token=int(t), logprob=float(logprobs[t])) for t in np.argsort(-logprobs)[:2])
    of_both = [float("nan") if token == NONE else float(logprobs[token]) for token in (subject, reference)]
    return Opinion(who=who, best=best, second=second, subject=of_both[0], reference=of_both[1])


def _log_softmax(logits: Values) -> Values:
    """Over the last axis, in float64: what rounds is the logits."""
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True)))


def _evidence(differing: Sequence[_Compared]) -> dict[str, JsonValue]:
    """Verdicts and departures as tables, the texts, and all facts that the verdicts follow from."""
    told = [(one, one.found, one.judged) for one in differing if one.found and one.judged]
    if not told:
        return {}
    return {
        "triage": [{"row": f.row, "verdict": j.verdict.value, "reason": j.reason} for _, f, j in told],
        "departures": [row for _, found, _ in told for row in departure_rows(found)],
        "texts": [{"row": f.row, "subject": one.text, "reference": one.reference} for one, f, _ in told],
        "text_differences": [json.loads(found.model_dump_json()) for _, found, _ in told],
    }


def departure_rows(found: TextDifference) -> list[JsonValue]:
    """The departures of one row as flat records: both candidates, their gap by all who were asked (nat), the floor."""
    return [
        {
            "row": found.row,
            "token": departure.position,
            "subject": f"{departure.subject} {departure.subject_text}",
            "reference": f"{departure.reference} {departure.reference_text}",
            **{f"gap_{opinion.who}": shown(opinion.gap) for opinion in departure.opinions},
            "behind": shown(departure.behind),
            "floor": shown(found.noise.floor),
        }
        for departure in found.departures
    ]
