"""Every oracle value is computed twice, with different orders of summation: computed once, it would be no oracle."""

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kit.errors import EnvironmentFault

Array: TypeAlias = npt.NDArray[np.float64]
Order: TypeAlias = npt.NDArray[np.intp]

AGREEMENT = 1e-12
"""Largest difference of two computations, relative to the largest magnitude of the value (at least 1).

float64 rounds at 1.1e-16; the longest chain here (two layers, sums of up to 512 terms) measured 2e-14.
"""


class OracleDisagreement(EnvironmentFault):
    """Two computations of one reference value differ: the machine cannot be trusted with a verdict."""

    def __init__(self, what: str, difference: float) -> None:
        super().__init__(
            f"the oracle disagrees with itself on {what} by {difference:.2e}",
            "check this machine's memory and processor, then run again",
        )


class Summation:
    """Sums and products over an index in one fixed order.

    Two instances add the same terms in different orders, so rounding and faults of the machine show as a difference.
    """

    def __init__(self, order: Callable[[int], Order] | None) -> None:
        self._order = order

    def places(self, size: int) -> Order:
        """The places 0 … size − 1 in the order of this summation, for sums that are not arrays."""
        return np.arange(size) if self._order is None else self._order(size)

    def contract(self, left: Array, right: Array) -> Array:
        """``left @ right``, [..., m, n] × [..., n, p] → [..., m, p]."""
        if self._order is not None:
            order = self._order(left.shape[-1])
            left, right = left[..., order], right[..., order, :]
        return np.asarray(np.matmul(left, right))

    def total(self, terms: Array) -> Array:
        """Sum over the last axis, which is kept with size 1."""
        if self._order is not None:
            terms = terms[..., self._order(terms.shape[-1])]
        return np.asarray(np.sum(terms, axis=-1, keepdims=True))


@cache
def _shuffled(size: int) -> Order:
    return np.random.Generator(np.random.Philox(key=size)).permutation(size)


FORWARD = Summation(None)
SHUFFLED = Summation(_shuffled)


def agreed(what: str, compute: Callable[[Summation], Array]) -> Array:
    """The value of `compute`, after two computations with different orders of summation agreed within `AGREEMENT`.

    Raises:
        OracleDisagreement: they differ, or the value is not finite.
    """
    first, second = compute(FORWARD), compute(SHUFFLED)
    scale = max(1.0, float(np.max(np.abs(first), initial=0.0)))
    difference = float(np.max(np.abs(first - second), initial=0.0)) / scale
    if not difference <= AGREEMENT:
        raise OracleDisagreement(what, difference)
    return first
