"""Upstream's test on real models: logprobs of a recorded text, adapter in use, against those that its trainer recorded.

The text in one request of its own, no token to generate, temperature 0, logprobs from the first token on, the first entry
dropped: the procedure of SGLang's test_lora_*_logprob_diff.py, so that the numbers compare. Upstream takes means in float32
where kit takes them in float64, which moves a mean by less than one part in a million.
"""

import numpy as np
from pydantic import JsonValue

from kit.check_spec import TrainerLogprobs
from kit.checks.outcome import CheckResult, shown
from kit.measurement import Comparison, LimitSource, Measurement
from kit.oracles import limits, metrics
from kit.oracles.metrics import Values
from kit.subjects.pinned_model import ADAPTER, PinnedModelSubject
from kit.subjects.sglang_engine import Served

_MOST_WORST = 5


def check(spec: TrainerLogprobs, subject: PinnedModelSubject) -> CheckResult:
    """First the base model, then the adapter, as upstream asks."""
    base, served = subject.logprobs(None), subject.logprobs(ADAPTER)
    sample = subject.sample
    measurements = (
        *_well_formed(served, sample.tokens.tolist()),
        limits.upstream_at_most(
            "trainer_kl",
            metrics.mean_half_square(served.logprobs, sample.training),
            spec.limit,
            "nat²",
            f"KL_THRESHOLD of SGLang's {spec.test}",
        ),
        _differing(served.logprobs, base.logprobs),
        *_beside(served.logprobs, base.logprobs, sample.training, sample.sampling),
        *(limits.context("published_trainer_kl", p.value, "nat²", f"{p.on}; {p.link}") for p in spec.published),
    )
    evidence: dict[str, JsonValue] = {
        "tokens": len(sample.tokens),
        "other_settings_than_upstream": [*spec.differing],
        "worst": _worst(served, sample.training, sample.sampling, sample.tokens.tolist()),
    }
    return CheckResult(measurements, evidence)


def _well_formed(served: Served, tokens: list[int]) -> list[Measurement]:
    wrong = sum(answered != asked for answered, asked in zip(served.tokens, tokens[1:], strict=True))
    return [
        limits.exactly_none("non_finite", metrics.non_finite(served.logprobs), "NaN or infinite logprobs"),
        limits.exactly_none("wrong_tokens", wrong, "token ids that are not the text's"),
    ]


def _differing(adapted: Values, base: Values) -> Measurement:
    return Measurement(
        name="differing_positions",
        value=float(np.count_nonzero(adapted != base)),
        unit="count",
        comparison=Comparison.AT_LEAST,
        limit=1.0,
        source=LimitSource.UPSTREAM,
        note=f"of {len(base)}; upstream asks that base and adapter are not equal",
    )


def _beside(served: Values, base: Values, trainer: Values, sampler: Values) -> list[Measurement]:
    """What upstream prints and does not judge, and where the engine is farthest from the trainer."""
    worst = metrics.farthest(served, trainer)
    floor = metrics.mean_half_square(sampler, trainer)
    return [
        limits.context(
            "sampler_trainer_kl", floor, "nat²", "the recording's own noise: its sampler against its trainer"
        ),
        limits.context("sampler_kl", metrics.mean_half_square(served, sampler), "nat²", "against the recorded sampler"),
        limits.context(
            "max_abs_difference", metrics.max_abs(served, trainer), "nat", f"from the trainer, at token {worst + 1}"
        ),
        limits.context(
            "adapter_effect", metrics.mean_half_square(served, base), "nat²", "mean ½Δ² from base to adapter"
        ),
        limits.context("adapter_max_effect", metrics.max_abs(served, base), "nat", "largest |Δ| from base to adapter"),
    ]


def _worst(served: Served, trainer: Values, sampler: Values, tokens: list[int]) -> list[JsonValue]:
    """The positions at which the engine is farthest from the trainer, farthest first."""
    distance = np.array(metrics.distances(served.logprobs, trainer))
    order = np.argsort(-np.where(np.isnan(distance), np.inf, distance), kind="stable")[:_MOST_WORST]
    return [
        {
            "position": int(index) + 1,
            "token": tokens[int(index) + 1],
            "served": shown(served.logprobs[index]),
            "trainer": shown(trainer[index]),
            "sampler": shown(sampler[index]),
        }
        for index in order
    ]
