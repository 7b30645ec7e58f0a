"""What upstream's rules hold against their limits, measured on the answers that a case got anyway (docs/selftest.md).

The rules themselves are in `kit.selftest.upstream`. As upstream has it, the reference of top logprobs and of texts is plain
transformers in the same dtype. Upstream's reference of mean ½Δ² is a recording of a trainer; here it is the oracle.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from kit.check_spec import AdapterLife, CachedIdentities, CheckSpec, FirstRequests
from kit.faults.apply import served_logprobs
from kit.measurement import Measurement
from kit.oracles import limits, metrics
from kit.oracles.metrics import Values
from kit.oracles.rouge import rouge_l
from kit.subjects.continued import TOP
from kit.subjects.overheard import Heard
from kit.subjects.sglang_engine import SGLangSubject
from kit.upstream_names import DECODE, HALF_SQUARE, PREFILL, ROUGE_L

MOST_TOKENS = 100
"""Upstream compares top logprobs of prompts and texts up to this length."""
FEWEST_TOKENS = 8
"""A shorter text is none; upstream's have 32 tokens."""


class UpstreamMeasures:
    """Measures the answers to one case after another; references are computed once for as long as the peer stays."""

    def __init__(self) -> None:
        self._peer: object = None
        self._top: dict[tuple[str | None, tuple[int, ...], int], Values] = {}

    def of(self, spec: CheckSpec, subject: SGLangSubject, heard: Sequence[Heard]) -> list[Measurement]:
        """Context for each rule that these answers are something for.

        Nothing is said of a case that serves other weights under a name than the session's.
        """
        if isinstance(spec, AdapterLife | FirstRequests | CachedIdentities):
            return []
        if self._peer is not subject.peer:
            self._peer = subject.peer
            self._top.clear()
        known = [_altered(one, subject) for one in heard if one.identity in (None, *subject.session.adapters)]
        return [
            *self._half_square(subject, known),
            *_worst(PREFILL, (self._prefill(subject, one) for one in known if _is_short_prompt(one))),
            *_worst(DECODE, (self._decode(subject, one) for one in known if 0 < one.asked <= MOST_TOKENS)),
            *_least(ROUGE_L, (_text_score(subject, one) for one in known if one.asked >= FEWEST_TOKENS)),
        ]

    def _half_square(self, subject: SGLangSubject, known: Sequence[Heard]) -> list[Measurement]:
        """Of one prompt: the longest that an adapter was asked for, the first of those; of the base model where none was."""
        prompts = [one for one in known if one.with_prompt and len(one.prompt) > 1]
        if not prompts:
            return []
        one = max(prompts, key=lambda heard: (heard.identity is not None, len(heard.prompt)))
        count = len(one.prompt) - 1
        served = one.logprobs[:count]
        if len(served) < count:
            return [limits.context(HALF_SQUARE, float("nan"), "nat²", "an answer of the wrong length")]
        oracle = subject.oracle.logprobs(one.prompt, one.identity)
        note = f"one prompt of {len(one.prompt)} tokens, {one.identity or 'base'}"
        return [limits.context(HALF_SQUARE, metrics.mean_half_square(served, oracle), "nat²", note)]

    def _prefill(self, subject: SGLangSubject, one: Heard) -> float:
        """The five largest logprobs after every token of the prompt but the last, largest with largest."""
        count = len(one.prompt) - 1
        return _apart(one.top[:count], self._reference(subject, one.prompt, one.identity, len(one.prompt))[:count])

    def _decode(self, subject: SGLangSubject, one: Heard) -> float:
        """The five largest at every new token, along the subject's text and along the reference's, whatever they are."""
        text = subject.peer.greedy(one.prompt, one.identity, one.asked)
        reference = self._reference(subject, (*one.prompt, *text[:-1]), one.identity, one.asked)
        return _apart(one.top[len(one.top) - len(one.tokens) :], reference)

    def _reference(self, subject: SGLangSubject, text: tuple[int, ...], identity: str | None, keep: int) -> Values:
        key = (identity, text, keep)
        if key not in self._top:
            self._top[key] = top_logprobs(subject.peer.last_logits(text, identity, keep))
        return self._top[key]


def top_logprobs(logits: Values) -> Values:
    """[places, vocabulary] logits → [places][`TOP`], nat: the largest logprobs, largest first."""
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    logprobs = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return np.asarray(-np.sort(-logprobs)[:, :TOP])


def _is_short_prompt(one: Heard) -> bool:
    return one.with_prompt and 1 < len(one.prompt) <= MOST_TOKENS


def _altered(one: Heard, subject: SGLangSubject) -> Heard:
    """An answer as checks see it: a fault of answers alters what an engine gave."""
    faults = subject.workspace.faults
    top = np.column_stack([served_logprobs(faults, column) for column in one.top.T]) if len(one.top) else one.top
    return replace(one, logprobs=served_logprobs(faults, one.logprobs), top=top)


def _apart(served: Values, reference: Values) -> float:
    """Largest |Δ|, nat; NaN where the answer is too short or has none."""
    return metrics.max_abs(served, reference) if served.shape == reference.shape else float("nan")


def _text_score(subject: SGLangSubject, one: Heard) -> float:
    text = subject.peer.greedy(one.prompt, one.identity, one.asked)
    return rouge_l(subject.text(one.tokens), subject.text(text))


def _worst(name: str, values: Iterable[float]) -> list[Measurement]:
    found = list(values)
    note = f"over {len(found)} answers"
    return [limits.context(name, float(np.max(found)), "nat", note)] if found else []


def _least(name: str, values: Iterable[float]) -> list[Measurement]:
    found = list(values)
    return [limits.context(name, min(found), "1", f"over {len(found)} texts")] if found else []
