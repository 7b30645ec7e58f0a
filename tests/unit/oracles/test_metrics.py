"""Distances on numbers that can be worked out by hand; NaN and infinity reach the result without a warning."""

import math

import numpy as np
import pytest

from kit.oracles import metrics

LEFT, RIGHT = np.array([3.0, -1.0, 2.0]), np.array([1.0, 3.0, 2.0])
BROKEN = np.array([np.inf, 1.0])


def test_distances_by_hand() -> None:
    assert metrics.mean_half_square(LEFT, RIGHT) == pytest.approx((2.0 + 8.0 + 0.0) / 3)
    assert metrics.mean_half_square(LEFT) == pytest.approx((4.5 + 0.5 + 2.0) / 3)
    assert metrics.max_abs(LEFT, RIGHT) == 4.0
    assert metrics.largest(np.array([2.0, -5.0])) == 5.0
    assert metrics.distances(np.array([[3.0], [-1.0]]), np.array([[1.0], [3.0]])) == [2.0, 4.0]
    assert metrics.rms(LEFT, RIGHT) == pytest.approx(math.sqrt(20.0 / 3))
    assert metrics.rms(LEFT) == pytest.approx(math.sqrt(14.0 / 3))


def test_directions_by_hand() -> None:
    assert metrics.cosine(np.array([3.0, 4.0]), np.array([4.0, 3.0])) == pytest.approx(24.0 / 25)
    assert metrics.slope(np.array([3.0, 5.0]), np.array([1.0, 2.0])) == pytest.approx(13.0 / 5)


def test_counts_by_hand() -> None:
    assert metrics.non_finite(np.array([np.nan, np.inf, -np.inf, 0.0])) == 3
    # The differences are 2, 4 and 0. Permitted are 0.5, 1.5 and 1, and then 1.5, 4.5 and 3.
    assert metrics.share_beyond(LEFT, RIGHT, 0.5) == pytest.approx(2.0 / 3)
    assert metrics.share_beyond(LEFT, RIGHT, 1.5) == pytest.approx(1.0 / 3)
    assert metrics.share_beyond(np.array([1.5, 2.0]), np.array([1.0, 2.0]), 0.5) == 0.0
    assert metrics.share_beyond(np.array([np.nan, 2.0]), np.array([1.0, 2.0]), 9.0) == 0.5
    both = np.array([np.nan, 1.0, np.nan, 4.0, 6.0])
    assert metrics.differing(both, np.array([np.nan, 1.0, 2.0, 5.0, 6.0])) == 2
    assert metrics.differing(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0])) == 1


def test_the_farthest_value() -> None:
    assert metrics.farthest(LEFT, RIGHT) == 1
    assert metrics.farthest(np.array([-4.0, 1.0]), np.array([-4.0, 2.0])) == 1
    assert metrics.farthest(np.array([5.0, np.nan, 9.0]), np.zeros(3)) == 1


@pytest.mark.parametrize(
    "measure",
    [
        metrics.mean_half_square,
        metrics.max_abs,
        metrics.distances,
        metrics.rms,
        metrics.cosine,
        metrics.slope,
        metrics.farthest,
        lambda left, right: metrics.share_beyond(left, right, 1.0),
    ],
)
def test_what_is_not_finite_warns_nobody(measure) -> None:
    """Where a caller makes numpy raise, infinity less infinity is still a number that says so."""
    with np.errstate(all="raise"):
        found = np.asarray(measure(BROKEN, BROKEN), dtype=np.float64)
    assert np.isnan(found).any() or metrics.farthest(BROKEN, BROKEN) == 0
