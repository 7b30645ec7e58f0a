"""Every limit worked out by hand: value, unit, comparison, source and the clause that tells how it came about."""

import math

import pytest

from kit.measurement import Comparison, LimitSource, Measurement
from kit.oracles import limits

UNIT = 2.0**-9
"""Of float16 at 3: 2**(1 − 10)."""
ERROR = Measurement(
    name="e", value=0.1, unit="nat", comparison=Comparison.AT_MOST, limit=0.25, source=LimitSource.PEER, note="n"
)
UNLIMITED = Measurement(name="e", value=0.1)


def judged(name: str, value: float, comparison: Comparison, limit: float, source: LimitSource, **rest: str) -> dict:
    return {
        "name": name,
        "value": value,
        "unit": "1",
        "comparison": comparison,
        "limit": pytest.approx(limit, rel=1e-12),
        "source": source,
        "note": "",
        "where": "",
    } | rest


@pytest.mark.parametrize("magnitude", [0.0, -1.0, math.inf, -math.inf, math.nan])
def test_no_unit_where_there_is_no_magnitude(magnitude: float) -> None:
    assert limits.unit_in_last_place("float16", magnitude) == 0.0


@pytest.mark.parametrize(
    ("values", "floor"), [(1.0, 1.0), (11.0, math.sqrt(2.0 / 12)), (math.inf, math.sqrt(1.0 / 12))]
)
def test_the_floor_of_an_rms(values: float, floor: float) -> None:
    assert limits.rms_floor(values) == pytest.approx(floor, rel=1e-12)


def test_the_peer_rules() -> None:
    found = limits.peer_max_abs("m", 0.2, 0.05, "float16", 3.0, "nat")
    note = "2 × peer 5.00e-02 + floor 1.95e-03"
    most = judged("m", 0.2, Comparison.AT_MOST, 0.1 + UNIT, LimitSource.PEER, unit="nat", note=note)
    assert found.model_dump() == most
    found = limits.peer_rms("r", 0.2, 0.05, "float16", 3.0, "nat", values=1.0)
    assert found.model_dump() == most | {"name": "r"}
    found = limits.peer_mean_half_square("k", 2e-6, 1e-6, "float16", 3.0)
    note = "4 × peer 1.00e-06 + floor 1.59e-07"
    limit = 4e-6 + UNIT**2 / 24.0
    assert found.model_dump() == judged("k", 2e-6, Comparison.AT_MOST, limit, LimitSource.PEER, unit="nat²", note=note)


def test_a_mean_of_few_values() -> None:
    largest = ERROR.model_copy(update={"limit": 3.0})
    mean = ERROR.model_copy(update={"limit": 0.5})
    found = limits.mean_of_few(mean, 4, largest)
    assert found == mean.model_copy(
        update={"limit": (4.5 + 3 * 0.5) / 4, "note": "n; one of 4 values may be off by 3.00e+00"}
    )
    assert limits.mean_of_few(mean, 1, largest).limit == 4.5
    assert limits.mean_of_few(mean, 0, largest).limit == 0.5
    assert limits.mean_of_few(mean, 4, UNLIMITED).limit == 3 * 0.5 / 4
    unlimited = mean.model_copy(update={"limit": None})
    assert limits.mean_of_few(unlimited, 4, largest).limit == 4.5 / 4


def test_a_peer_near_the_oracle() -> None:
    found = limits.sane_peer(0.1, "float16", 3.0, "nat")
    note = "4 units in the last place of float16 at 3"
    limited = judged("peer_rms_error", 0.1, Comparison.AT_MOST, 4 * UNIT, LimitSource.PEER, unit="nat", note=note)
    assert found.model_dump() == limited
    # One unit at 100 is 2**(6 − 10), half of it 1/32, and exp(2/32) − 1 = 0.06449446.
    found = limits.sane_peer(0.1, "float16", 3.0, "nat", largest_score=100.0)
    assert found.limit == pytest.approx(4 * UNIT + 3.0 * 0.06449446, rel=1e-6)
    assert found.note == f"{note} + 1.93e-01 for scores up to 100"


def test_constants_of_upstream() -> None:
    found = limits.upstream_at_most("u", 0.3, 0.25, "nat", "its test")
    limit = judged("u", 0.3, Comparison.AT_MOST, 0.25, LimitSource.UPSTREAM, unit="nat", note="its test")
    assert found.model_dump() == limit


def test_counts() -> None:
    none = limits.exactly_none("bad", 3, "of these")
    expected = judged("bad", 3.0, Comparison.EQUAL, 0.0, LimitSource.EXACT, unit="count", note="of these")
    assert none.model_dump() == expected
    least = limits.at_least_count("rows", 3, 4, "to tell")
    expected = judged("rows", 3.0, Comparison.AT_LEAST, 4.0, LimitSource.EXACT, unit="count", note="to tell")
    assert least.model_dump() == expected
    assert limits.context("seen", 3.5, "nat", "why") == Measurement(name="seen", value=3.5, unit="nat", note="why")
    assert limits.context("seen", 3.5, "nat").note == ""


def test_two_permitted_errors() -> None:
    expected = judged("b", 0.6, Comparison.AT_MOST, 0.5, LimitSource.PEER, unit="nat", note="two permitted errors")
    assert limits.best_choice(0.6, ERROR).model_dump() == expected | {"name": "best_choice_gap"}
    assert limits.two_answers("b", 0.6, ERROR).model_dump() == expected
    assert limits.best_choice(0.0, UNLIMITED).limit == 0.0
    assert limits.two_answers("b", 0.0, UNLIMITED).limit == 0.0


def test_effects() -> None:
    found = limits.effect_size("s", 0.2, 0.3)
    note = "half of the oracle's 3.000e-01"
    assert found.model_dump() == judged("s", 0.2, Comparison.AT_LEAST, 0.15, LimitSource.EFFECT, unit="nat²", note=note)
    assert limits.noise_rms(ERROR) == pytest.approx(math.sqrt(0.5))
    assert limits.noise_rms(UNLIMITED) == 0.0


@pytest.mark.parametrize(
    ("noise", "effect", "values", "peer", "limit"),
    [
        (0.2, 4.0, 1, 1.0, 0.05),  # Cauchy and Schwarz: 0.2 / 4
        (0.2, 4.0, 100, 1.0, 0.025),  # 5 × 0.05 / √100
        (0.2, 4.0, 100, 1.005, 0.035),  # and twice 0.005
        (0.2, 4.0, 100, 0.995, 0.035),
        (0.2, 4.0, 100, math.nan, 0.05),
        (math.inf, 4.0, 100, 1.0, 0.0),
        (0.2, 0.0, 100, 1.0, 0.0),
    ],
)
def test_the_slope_of_an_effect(noise: float, effect: float, values: int, peer: float, limit: float) -> None:
    found = limits.effect_slope("s", 1.25, noise, effect, values, peer)
    note = "no effect is expected"
    if limit:
        note = f"slope 1 within permitted noise 2.00e-01 / effect 4.00e+00 nat over {values} values"
    assert found.model_dump() == judged("s", 0.25, Comparison.AT_MOST, limit, LimitSource.EFFECT, note=note)


def test_the_slope_of_one_value_and_of_an_exact_peer_is_the_default() -> None:
    assert limits.effect_slope("s", 0.75, 0.2, 4.0) == limits.effect_slope("s", 1.25, 0.2, 4.0, 1, 1.0)
    assert limits.effect_slope("s", 1.25, 0.2, 4.0, 100).limit == pytest.approx(0.025, rel=1e-12)
    assert limits.effect_slope("s", 1.25, 0.2, 0.5).limit == pytest.approx(0.4, rel=1e-12)
