"""What all checks of logprobs share: served values beside oracle and peer, and the measurements that follow."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from kit.checks.outcome import shown
from kit.evidence import ErrorByPosition, largest_of_each, window_for
from kit.measurement import Measurement
from kit.oracles import limits, metrics
from kit.oracles.limits import Dtype
from kit.oracles.metrics import Values
from kit.subjects.sglang_engine import Served, SGLangSubject

Prompts = Sequence[Sequence[int]]
_UPSTREAM = "KL_THRESHOLD of SGLang's test_lora_qwen3_8b_logprob_diff.py"


@dataclass(frozen=True)
class Compared:
    """Logprobs of one identity on the same prompts, joined over the prompts: [positions], nat.

    Attributes:
        starts: per prompt, the place of the first token that is judged; 1 where all are, since the first has no logprob.
        served, oracle, peer: from the engine, in float64, and from the peer.
        tokens: the token ids that the engine reported.
        calibration: the peer's error at every place of the prompts, judged or not, nat: few places would calibrate badly.
        magnitude: largest |logprob| of the oracle at every place, nat: rounding is in units of the dtype there.
    """

    prompts: Prompts
    starts: Sequence[int]
    served: Values
    oracle: Values
    peer: Values
    tokens: tuple[int, ...]
    calibration: Values
    magnitude: float
    dtype: Dtype

    @property
    def wrong_tokens(self) -> int:
        """Positions at which the engine reported another token id than the prompt's."""
        asked = [t for prompt, start in zip(self.prompts, self.starts, strict=True) for t in prompt[start:]]
        return sum(answered != token for answered, token in zip(self.tokens, asked, strict=True))

    @property
    def counts(self) -> list[int]:
        """How many tokens are judged, prompt by prompt."""
        return [len(prompt) - start for prompt, start in zip(self.prompts, self.starts, strict=True)]

    @property
    def served_error(self) -> float:
        """Mean ½Δ² of the engine to the oracle, nat²."""
        return metrics.mean_half_square(self.served, self.oracle)

    @property
    def largest_error(self) -> Measurement:
        """The peer rule on the largest error."""
        peer, served = metrics.largest(self.calibration), metrics.max_abs(self.served, self.oracle)
        return limits.peer_max_abs("max_abs_error", served, peer, self.dtype, self.magnitude, "nat")

    @property
    def permitted(self) -> Measurement:
        """The peer rule on mean ½Δ²."""
        peer = metrics.mean_half_square(self.calibration)
        return limits.peer_mean_half_square("mean_half_square", self.served_error, peer, self.dtype, self.magnitude)


def compare(
    subject: SGLangSubject,
    prompts: Prompts,
    identity: str | None,
    answers: Sequence[Served],
    starts: Sequence[int] | None = None,
) -> Compared:
    """Answers of the engine beside oracle and peer; `starts` as in `Compared`, None for all of every prompt."""
    starts = [1] * len(prompts) if starts is None else starts
    oracle = [subject.oracle.logprobs(prompt, identity) for prompt in prompts]
    peer = [subject.peer.logprobs(prompt, identity) for prompt in prompts]

    def judged(values: list[Values]) -> Values:
        return np.concatenate([part[start - 1 :] for part, start in zip(values, starts, strict=True)])

    everywhere = np.concatenate(oracle)
    return Compared(
        prompts=prompts,
        starts=starts,
        served=np.concatenate([answer.logprobs for answer in answers]),
        oracle=judged(oracle),
        peer=judged(peer),
        tokens=tuple(token for answer in answers for token in answer.tokens),
        calibration=np.concatenate(peer) - everywhere,
        magnitude=float(np.max(np.abs(everywhere))),
        dtype=subject.session.dtype,
    )


def same_again(name: str, again: Compared, first: Compared) -> list[Measurement]:
    """The same tokens served in two ways: both may be off by rounding, but by no more than the peer rule leaves each.

    Bitwise equality is reported and not judged: kernels may sum in another order in another batch.
    """
    difference = metrics.max_abs(again.served, first.served)
    peer = metrics.largest(again.calibration)
    differing = int(np.count_nonzero(~(again.served == first.served)))
    return [
        limits.peer_max_abs(f"max_abs_to_{name}", difference, peer, again.dtype, again.magnitude, "nat"),
        limits.context(f"positions_not_bitwise_equal_to_{name}", float(differing), "count"),
    ]


def accuracy(compared: Compared) -> list[Measurement]:
    """How near the engine is to the oracle, and that the peer which says how near it must be is sane."""
    return [
        limits.exactly_none("non_finite", metrics.non_finite(compared.served), "NaN or infinite logprobs"),
        limits.exactly_none("wrong_tokens", compared.wrong_tokens, "token ids that are not the prompt's"),
        compared.largest_error,
        compared.permitted,
        limits.upstream_at_most("upstream_kl", compared.served_error, limits.UPSTREAM_KL, "nat²", _UPSTREAM),
        limits.sane_peer(metrics.rms(compared.calibration), compared.dtype, compared.magnitude, "nat"),
    ]


def effect(adapted: Compared, base: Compared) -> list[Measurement]:
    """That the adapter moves the served logprobs from the served base model's, by the amount that the oracle says."""
    with np.errstate(invalid="ignore"):
        served_change, change = adapted.served - base.served, adapted.oracle - base.oracle
        peer_slope = metrics.slope(adapted.peer - base.peer, change)
    expected = metrics.mean_half_square(adapted.oracle, base.oracle)
    noise = limits.noise_rms(adapted.permitted) + limits.noise_rms(base.permitted)
    slope = metrics.slope(served_change, change)
    return [
        limits.effect_size("effect", metrics.mean_half_square(adapted.served, base.served), expected),
        limits.effect_slope("effect_slope_off_one", slope, noise, metrics.rms(change), len(change), peer_slope),
        limits.context("effect_slope", slope, "1", "served change on the oracle's; 1 is right"),
    ]


def worst_position(compared: Compared) -> dict[str, JsonValue]:
    """Where the engine is farthest from the oracle."""
    worst = metrics.farthest(compared.served, compared.oracle)
    prompt, judged = _place(worst, compared.counts)
    position = compared.starts[prompt] + judged
    return {
        "prompt": prompt,
        "position": position,
        "token": compared.prompts[prompt][position],
        "served": shown(compared.served[worst]),
        "oracle": shown(compared.oracle[worst]),
        "peer": shown(compared.peer[worst]),
    }


def per_prompt(compared: Compared) -> list[JsonValue]:
    """Largest error of engine and peer, prompt by prompt."""
    ends = np.cumsum(compared.counts)[:-1]
    parts = zip(*(np.split(values, ends) for values in (compared.served, compared.oracle, compared.peer)), strict=True)
    return [
        {
            "tokens": len(prompt),
            "served_max_abs_error": shown(metrics.max_abs(served, oracle)),
            "peer_max_abs_error": shown(metrics.max_abs(peer, oracle)),
        }
        for prompt, (served, oracle, peer) in zip(compared.prompts, parts, strict=True)
        if len(oracle)  # a prompt of one token has no logprob
    ]


def by_position(compared: Compared) -> JsonValue:
    """The errors of engine and peer along the prompts, beside the limit of the largest."""
    ends = np.cumsum([len(prompt) - 1 for prompt in compared.prompts])
    window, most = window_for(len(compared.oracle)), compared.largest_error
    return ErrorByPosition(
        unit="nat",
        window=window,
        starts=(0, *(int(end) for end in ends[:-1])),
        served=largest_of_each(metrics.distances(compared.served, compared.oracle), window),
        peer=largest_of_each(metrics.distances(compared.peer, compared.oracle), window),
        limit=most.limit or 0.0,
    ).as_evidence()


def _place(index: int, lengths: Sequence[int]) -> tuple[int, int]:
    for prompt, length in enumerate(lengths):
        if index < length:
            return prompt, index
        index -= length
    raise IndexError("beyond the last position")
