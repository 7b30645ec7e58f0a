import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.measurement import Comparison, LimitSource
from kit.oracles import limits, metrics


@settings(deadline=None)
@given(magnitude=st.floats(2.0**-10, 6e4))
def test_units_in_the_last_place_are_numpys_spacing(magnitude: float) -> None:
    for dtype, numpy_type in (("float32", np.float32), ("float16", np.float16)):
        rounded = numpy_type(magnitude)
        if np.isfinite(rounded):
            assert limits.unit_in_last_place(dtype, float(rounded)) == float(np.spacing(rounded))


def test_units_of_bfloat16_are_65536_units_of_float32() -> None:
    for magnitude in (0.3, 1.0, 10.9, 255.0):
        assert limits.unit_in_last_place("bfloat16", magnitude) == 2.0**16 * float(np.spacing(np.float32(magnitude)))


def test_the_peer_rule_is_twice_the_peer_and_one_unit() -> None:
    found = limits.peer_max_abs("e", 0.03, 0.01, "bfloat16", 1.0, "nat")
    assert found.limit == 2 * 0.01 + 2.0**-7
    assert (found.comparison, found.source) == (Comparison.AT_MOST, LimitSource.PEER)
    assert not found.within
    assert limits.peer_max_abs("e", 0.0278, 0.01, "bfloat16", 1.0, "nat").within


def test_the_floor_of_mean_half_square_is_that_of_rounding_noise() -> None:
    """Half the variance of an error that is uniform over one unit, by simulation."""
    unit = limits.unit_in_last_place("float32", 10.0)
    noise = (np.random.Generator(np.random.Philox(key=2)).random(200_000) - 0.5) * unit
    floor = limits.peer_mean_half_square("m", 0.0, 0.0, "float32", 10.0).limit
    assert floor == pytest.approx(metrics.mean_half_square(noise, 0 * noise), rel=0.02)
    rms_floor = limits.peer_rms("r", 0.0, 0.0, "float32", 10.0, "1").limit
    assert rms_floor == pytest.approx(metrics.rms(noise, 0 * noise), rel=0.02)


@pytest.mark.parametrize("peer", [math.nan, math.inf])
def test_a_peer_that_is_not_finite_permits_nothing(peer: float) -> None:
    found = limits.peer_max_abs("e", 1e-3, peer, "float32", 10.0, "nat")
    assert not found.within
    assert "peer is not finite" in found.note
    assert not limits.sane_peer(peer, "float32", 10.0, "nat").within


def test_a_peer_that_is_far_off_is_red_itself() -> None:
    assert limits.sane_peer(6e-7, "float32", 10.0, "nat").within
    assert not limits.sane_peer(1e-4, "float32", 10.0, "nat").within


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_keep_no_limit(value: float) -> None:
    kept = [
        limits.peer_max_abs("a", value, 1e-6, "float32", 10.0, "nat"),
        limits.peer_mean_half_square("b", value, 1e-12, "float32", 10.0),
        limits.upstream_at_most("c", value, 5e-3, "nat²", "a test"),
        limits.effect_slope("d", value, 1e-6, 1.0),
    ]
    assert [m.within for m in kept] == [False] * 4


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), size=st.floats(1e-6, 0.1))
def test_noise_within_the_peer_rule_never_breaks_the_slope(seed: int, size: float) -> None:
    """The bound on the slope follows from the peer rule, so it raises no alarm of its own."""
    random = np.random.Generator(np.random.Philox(key=seed))
    change, noise = random.normal(size=50), size * random.normal(size=50)
    slope = metrics.slope(change + noise, change)
    permitted = limits.effect_slope("s", slope, metrics.rms(noise, 0 * noise), metrics.rms(change, 0 * change))
    assert permitted.within


def test_a_scaling_that_is_a_tenth_too_large_breaks_the_slope() -> None:
    change = np.linspace(-1, 1, 40)
    found = limits.effect_slope("s", metrics.slope(1.1 * change, change), 0.05, metrics.rms(change, 0 * change))
    assert found.value == pytest.approx(0.1)
    assert not found.within


def test_no_expected_effect_permits_no_slope_but_one() -> None:
    assert not limits.effect_slope("s", math.nan, 1e-6, 0.0).within


def test_metrics_of_known_arrays() -> None:
    left, right = np.array([1.0, 2.0, 4.0]), np.array([1.0, 0.0, 1.0])
    assert metrics.mean_half_square(left, right) == pytest.approx((4 + 9) / 6)
    assert metrics.max_abs(left, right) == 3.0
    assert metrics.rms(left, right) == pytest.approx(math.sqrt(13 / 3))
    assert metrics.cosine(left, right) == pytest.approx(5 / math.sqrt(21 * 2))
    assert metrics.farthest(left, right) == 2


def test_zeros_and_nan_are_no_match() -> None:
    right = np.array([1.0, 0.0, 1.0])
    assert math.isnan(metrics.cosine(np.zeros(3), right))
    broken = np.array([1.0, math.nan, -math.inf])
    assert metrics.non_finite(broken) == 2
    assert math.isnan(metrics.max_abs(broken, right))
    assert metrics.farthest(broken, right) == 1


def test_the_peer_rule_on_squares_is_the_peer_rule_on_errors() -> None:
    """An error of exactly twice the peer's keeps the limit, and one of 2.1 times does not, in either measure."""
    peer = 1e-3 * np.random.Generator(np.random.Philox(key=4)).normal(size=100)
    zero = np.zeros(100)
    for factor, kept in ((2.0, True), (2.1, False)):
        square = limits.peer_mean_half_square(
            "m", metrics.mean_half_square(factor * peer, zero), metrics.mean_half_square(peer, zero), "float32", 1.0
        )
        rms = limits.peer_rms("r", metrics.rms(factor * peer, zero), metrics.rms(peer, zero), "float32", 1.0, "nat")
        assert (square.within, rms.within) == (kept, kept)
