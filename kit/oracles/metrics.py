"""Distances between what was served and its reference. NaN and infinity are never hidden: they reach the result."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Values: TypeAlias = npt.NDArray[np.float64]


def mean_half_square(left: Values, right: Values | float = 0.0) -> float:
    """mean ½ (left − right)², nat²: ``kl_v2`` of SGLang's test_lora_qwen3_8b_logprob_diff.py, which estimates KL."""
    with np.errstate(all="ignore"):
        return float(np.mean(0.5 * (left - right) ** 2))


def max_abs(left: Values, right: Values) -> float:
    """max |left − right|."""
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(left - right)))


def largest(values: Values) -> float:
    """max |values|."""
    return float(np.max(np.abs(values)))


def distances(left: Values, right: Values) -> list[float]:
    """|left − right|, value by value, flattened."""
    with np.errstate(all="ignore"):
        return [float(value) for value in np.abs(left - right).ravel()]


def rms(left: Values, right: Values | float = 0.0) -> float:
    """√ mean (left − right)²."""
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.mean((left - right) ** 2)))


def cosine(left: Values, right: Values) -> float:
    """Cosine of the angle between the flattened arrays; NaN where one of them is all zero."""
    a, b = left.ravel(), right.ravel()
    with np.errstate(all="ignore"):
        return float(np.dot(a, b) / (np.sqrt(np.dot(a, a)) * np.sqrt(np.dot(b, b))))


def slope(response: Values, cause: Values) -> float:
    """Slope of the least-squares line through the origin, Σ response·cause / Σ cause²."""
    with np.errstate(all="ignore"):
        return float(np.dot(response, cause) / np.dot(cause, cause))


def non_finite(values: Values) -> int:
    """How many values are NaN or infinite."""
    return int(np.count_nonzero(~np.isfinite(values)))


def share_beyond(left: Values, right: Values, tolerance: float) -> float:
    """Which share of the values is off by more than `tolerance` of the right one; NaN is off."""
    with np.errstate(all="ignore"):
        return float(np.mean(~(np.abs(left - right) <= tolerance * np.abs(right))))


def differing(left: Values, right: Values) -> int:
    """How many values are not the same; NaN is the same as NaN."""
    return int(np.count_nonzero(~((left == right) | (np.isnan(left) & np.isnan(right)))))


def farthest(left: Values, right: Values) -> int:
    """Flat index of the largest |left − right|; NaN counts as largest, as everywhere in numpy."""
    with np.errstate(all="ignore"):
        return int(np.argmax(np.abs(left - right)))
