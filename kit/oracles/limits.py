"""From values to measurements: where each limit comes from. See docs/limits.md for the reasons.

Peer rule: an error may be at most twice that of a plain implementation in the same dtype against the same oracle, plus
a floor in units of the dtype. The factor 2 is FlashAttention's (tests/test_flash_attn.py: "2 * max error of PyTorch").
"""

import math
from typing import Literal

from kit.measurement import Comparison, LimitSource, Measurement

Dtype = Literal["float32", "bfloat16", "float16"]

PEER_FACTOR = 2.0
PEER_SANITY = 4.0
UPSTREAM_KL = 5e-3
"""KL_THRESHOLD of test_lora_qwen3_8b_logprob_diff.py, in nat²."""
UPSTREAM_COSINE = 0.99
UPSTREAM_ATOL = 3e-2
"""Grouped decode in test_wave_attention_kernels.py: cosine > 0.99 and atol 3e-2; prefill: cosine > 1 − 1e-5, the same atol."""
UPSTREAM_PREFILL_COSINE = 1.0 - 1e-5
UPSTREAM_RTOL = 1e-2
"""Extend in test_wave_attention_kernels.py: allclose with rtol 1e-2 against another Triton kernel."""

SLOPE_DEVIATIONS = 5.0
"""Standard deviations of permitted noise that a slope may be off: by chance once in 1.7 million."""

_FRACTION_BITS: dict[Dtype, int] = {"float32": 23, "bfloat16": 7, "float16": 10}


def unit_in_last_place(dtype: Dtype, magnitude: float) -> float:
    """Distance of neighbouring values of `dtype` at `magnitude` (IEEE 754: 2**(exponent − fraction bits))."""
    if not (math.isfinite(magnitude) and magnitude > 0.0):
        return 0.0
    return math.ldexp(1.0, math.frexp(magnitude)[1] - 1 - _FRACTION_BITS[dtype])


def _at_most(name: str, value: float, limit: float, unit: str, source: LimitSource, note: str) -> Measurement:
    return Measurement(
        name=name, value=value, unit=unit, comparison=Comparison.AT_MOST, limit=limit, source=source, note=note
    )


def _peer(name: str, value: float, factor: float, peer: float, floor: float, unit: str) -> Measurement:
    if math.isfinite(peer):
        limit, note = factor * peer + floor, f"{factor:g} × peer {peer:.2e} + floor {floor:.2e}"
    else:
        limit, note = floor, f"floor {floor:.2e} alone: the peer is not finite"
    return _at_most(name, value, limit, unit, LimitSource.PEER, note)


def peer_max_abs(name: str, value: float, peer: float, dtype: Dtype, magnitude: float, unit: str) -> Measurement:
    """The peer rule for a largest error. Floor: one unit in the last place of `dtype` at `magnitude`.

    Two correct implementations that differ at all differ by one unit at least.
    """
    return _peer(name, value, PEER_FACTOR, peer, unit_in_last_place(dtype, magnitude), unit)


def rms_floor(values: float = math.inf) -> float:
    """Floor of an rms over so many different values, in units in the last place: √(1/12 + 11/(12 values)).

    One of them may be off by a whole unit, as the rule of the largest error permits, the others spread evenly over one:
    (1 + (values − 1)/12) / values. So 1 for one value, whose rms is its largest error, and 1/√12 for many.
    """
    return math.sqrt((1.0 + 11.0 / values) / 12.0)


def peer_rms(
    name: str, value: float, peer: float, dtype: Dtype, magnitude: float, unit: str, values: float = math.inf
) -> Measurement:
    """The peer rule for a root mean square over `values` different values. Floor: `rms_floor` of them, in units of `dtype`."""
    return _peer(name, value, PEER_FACTOR, peer, unit_in_last_place(dtype, magnitude) * rms_floor(values), unit)


def peer_mean_half_square(name: str, value: float, peer: float, dtype: Dtype, magnitude: float) -> Measurement:
    """The peer rule for mean ½Δ². Floor: u²/24, half the variance of an error spread evenly over one unit.

    Twice the error is four times its square, so the factor is 4: the rule of the rms. A factor of 2 would mean
    1.4 × the error, which correct engines break on rows of 64 tokens (once in 144 cases of a calibration).
    """
    return _peer(name, value, PEER_FACTOR**2, peer, unit_in_last_place(dtype, magnitude) ** 2 / 24.0, "nat²")


def mean_of_few(mean: Measurement, values: int, largest: Measurement) -> Measurement:
    """A mean ½Δ² over `values` values: (½E² + (values − 1) M) / values.

    One of them may be as far off as the rule of the largest error permits, E, the others as the rule of the mean does, M: a
    single value has no mean. For many values that is M.
    """
    most, usual = largest.limit or 0.0, mean.limit or 0.0
    limit = (0.5 * most**2 + (values - 1) * usual) / values if values else usual
    return mean.model_copy(
        update={"limit": limit, "note": f"{mean.note}; one of {values} values may be off by {most:.2e}"}
    )


def sane_peer(value: float, dtype: Dtype, magnitude: float, unit: str, largest_score: float = 0.0) -> Measurement:
    """The peer's own rms error, at most 4 units in the last place: a peer far off would loosen every limit.

    Measured on the synthetic models: 0.6 units in float32, 0.4 in bfloat16; a wrong weight or position gives hundreds.
    A peer that rounds attention scores s to the dtype by up to ε moves its answer by up to (exp(2ε) − 1) of the values'
    magnitude, where ε is half a unit at max |s|; that is granted on top.
    """
    rounding = 0.5 * unit_in_last_place(dtype, largest_score)
    granted = math.expm1(2.0 * rounding) * magnitude
    limit = PEER_SANITY * unit_in_last_place(dtype, magnitude) + granted
    note = f"4 units in the last place of {dtype} at {magnitude:.3g}"
    if granted > 0.0:
        note += f" + {granted:.2e} for scores up to {largest_score:.3g}"
    return _at_most("peer_rms_error", value, limit, unit, LimitSource.PEER, note)


def upstream_at_most(name: str, value: float, limit: float, unit: str, note: str) -> Measurement:
    """Held against a constant of the upstream tests; `note` names the test."""
    return _at_most(name, value, limit, unit, LimitSource.UPSTREAM, note)


def exactly_none(name: str, count: int, note: str) -> Measurement:
    """A count that must be 0."""
    return Measurement(
        name=name,
        value=float(count),
        unit="count",
        comparison=Comparison.EQUAL,
        limit=0.0,
        source=LimitSource.EXACT,
        note=note,
    )


def at_least_count(name: str, count: int, least: int, note: str) -> Measurement:
    """A count without which the case would prove nothing."""
    return Measurement(
        name=name,
        value=float(count),
        unit="count",
        comparison=Comparison.AT_LEAST,
        limit=float(least),
        source=LimitSource.EXACT,
        note=note,
    )


def best_choice(gap: float, error: Measurement) -> Measurement:
    """A greedily chosen token is the oracle's best, or worse by no more than two permitted errors, nat.

    An engine prefers a worse token only where the errors of the two logprobs exceed their gap.

    Args:
        gap: largest logprob of any token less that of the chosen one, by the oracle. error: the largest error and its limit.
    """
    limit = 2.0 * (error.limit or 0.0)
    return _at_most("best_choice_gap", gap, limit, "nat", LimitSource.PEER, "two permitted errors")


def two_answers(name: str, difference: float, error: Measurement) -> Measurement:
    """Two answers to the same question differ by no more than what each may be off by, nat: |a − b| ≤ |a − o| + |b − o|.

    Args:
        error: the largest error and its limit.
    """
    return _at_most(name, difference, 2.0 * (error.limit or 0.0), "nat", LimitSource.PEER, "two permitted errors")


def effect_size(name: str, served: float, expected: float) -> Measurement:
    """An adapter must move logprobs: mean ½Δ² from served base to served adapter, at least half of the oracle's, nat².

    Half, because a missing adapter gives nothing, and noise is orders of magnitude smaller than an adapter's effect.
    """
    return Measurement(
        name=name,
        value=served,
        unit="nat²",
        comparison=Comparison.AT_LEAST,
        limit=0.5 * expected,
        source=LimitSource.EFFECT,
        note=f"half of the oracle's {expected:.3e}",
    )


def effect_slope(
    name: str, slope: float, noise_rms: float, effect_rms: float, values: int = 1, peer_slope: float = 1.0
) -> Measurement:
    """An adapter must move logprobs by the amount that the oracle says: |slope − 1| of served change on oracle change.

    With served = oracle + noise, slope − 1 = Σ noise·change / Σ change² ≤ rms(noise) / rms(change) (Cauchy–Schwarz). Noise that
    has nothing to do with the change stays far below that: over n values its standard deviation is rms(noise) / (√n rms(change)).
    `SLOPE_DEVIATIONS` of them are permitted, and twice what the peer's own slope is off, which is noise that has to do with it.

    Args:
        noise_rms: largest rms of the noise that the peer rule permits in the served change, nat.
        effect_rms: rms of the oracle's change, nat.
        values: n. peer_slope: of the peer's change on the oracle's.
    """
    limit, note = 0.0, "no effect is expected"
    if effect_rms > 0.0 and math.isfinite(noise_rms):
        most = noise_rms / effect_rms
        usual = SLOPE_DEVIATIONS * most / math.sqrt(values) + PEER_FACTOR * abs(peer_slope - 1.0)
        limit = min(most, usual) if math.isfinite(usual) else most
        note = f"slope 1 within permitted noise {noise_rms:.2e} / effect {effect_rms:.2e} nat over {values} values"
    return Measurement(
        name=name,
        value=abs(slope - 1.0),
        comparison=Comparison.AT_MOST,
        limit=limit,
        source=LimitSource.EFFECT,
        note=note,
    )


def noise_rms(kept: Measurement) -> float:
    """The rms that a mean ½Δ² at its limit stands for, √(2 · limit), nat."""
    return math.sqrt(2.0 * (kept.limit or 0.0))


def context(name: str, value: float, unit: str, note: str = "") -> Measurement:
    """A number that is reported and not judged."""
    return Measurement(name=name, value=value, unit=unit, note=note)
