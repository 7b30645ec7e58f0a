"""Random numbers that are the same on every machine and in every version: raw Philox words and integer arithmetic only.

numpy promises a stable stream for bit generators, not for its distributions (NEP 19), so no distribution is used here.
"""

import hashlib
import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]
Weights: TypeAlias = npt.NDArray[np.float32]

LARGEST = 255
"""Largest integer of a weight: eight bits, the significand of bfloat16. float16 and float32 hold it too."""

_PARTS = 4
_HALF_RANGE = _PARTS * 0xFFFF // 2
_UNIT_STD = math.sqrt(_PARTS / 12.0) * 0x10000 / _HALF_RANGE  # of the sum, as a fraction of its largest value


def words(label: str, count: int) -> Words:
    """`count` raw 64-bit words of the stream that belongs to `label`."""
    key = int.from_bytes(hashlib.sha256(label.encode()).digest()[:16], "little")
    return np.random.Philox(key=key).random_raw(count)


def bell(label: str, count: int, std: float, exponent: int | None = None) -> Weights:
    """`count` values k × 2**-exponent, k an integer with |k| ≤ 255, nearly normal with mean 0.

    k is the sum of four 16-bit parts of one word (Irwin–Hall distribution, within 3.46 standard deviations), scaled and
    rounded in integer arithmetic. Exact in bfloat16, float16 and float32.

    Args:
        std: standard deviation of the values; met within 0.4 % where `exponent` is None.
        exponent: of the grid; None takes the finest that 8 bits allow.
    """
    if exponent is None:
        exponent = math.floor(math.log2(LARGEST * _UNIT_STD / std))
    bound = round(std * 2.0**exponent / _UNIT_STD)
    if not 1 <= bound <= LARGEST:
        raise ValueError(f"a standard deviation of {std} does not fit a grid of 2**-{exponent}")
    drawn = words(label, count)
    parts = [(drawn >> np.uint64(16 * part)) & np.uint64(0xFFFF) for part in range(_PARTS)]
    centred = np.sum(parts, axis=0, dtype=np.int64) - _HALF_RANGE
    k = (2 * centred * bound + _HALF_RANGE) // (2 * _HALF_RANGE)
    return np.ldexp(k.astype(np.float32), -exponent)
