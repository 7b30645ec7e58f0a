import math

import pytest
from pydantic import ValidationError

from kit.measurement import Comparison, LimitSource, Measurement


def judged(value: float, comparison: Comparison, limit: float) -> Measurement:
    return Measurement(name="x", value=value, comparison=comparison, limit=limit, source=LimitSource.EXACT)


@pytest.mark.parametrize(
    ("value", "comparison", "limit", "within"),
    [
        (1.0, Comparison.AT_MOST, 1.0, True),
        (1.0000001, Comparison.AT_MOST, 1.0, False),
        (1.0, Comparison.AT_LEAST, 1.0, True),
        (0.9999999, Comparison.AT_LEAST, 1.0, False),
        (0.0, Comparison.EQUAL, 0.0, True),
        (1.0, Comparison.EQUAL, 0.0, False),
        (math.nan, Comparison.AT_MOST, 1.0, False),
        (math.nan, Comparison.AT_LEAST, 1.0, False),
        (math.nan, Comparison.EQUAL, 0.0, False),
        (math.inf, Comparison.AT_MOST, 1.0, False),
    ],
)
def test_a_value_is_held_against_its_limit(value: float, comparison: Comparison, limit: float, within: bool) -> None:
    assert judged(value, comparison, limit).within is within


@pytest.mark.parametrize(
    ("value", "comparison", "limit", "margin"),
    [
        (0.5, Comparison.AT_MOST, 1.0, 2.0),
        (2.0, Comparison.AT_MOST, 1.0, 0.5),
        (0.0, Comparison.AT_MOST, 1.0, math.inf),
        (2.0, Comparison.AT_LEAST, 1.0, 2.0),
        (0.5, Comparison.AT_LEAST, 1.0, 0.5),
        (math.nan, Comparison.AT_MOST, 1.0, 0.0),
    ],
)
def test_the_margin_is_above_one_inside_and_below_one_outside(
    value: float, comparison: Comparison, limit: float, margin: float
) -> None:
    assert judged(value, comparison, limit).margin == margin


def test_equality_and_context_have_no_margin() -> None:
    assert judged(0.0, Comparison.EQUAL, 0.0).margin is None
    assert Measurement(name="x", value=3.0).margin is None


def test_context_is_not_judged() -> None:
    context = Measurement(name="x", value=math.nan)
    assert not context.judged
    assert context.within


def test_a_limit_without_its_source_is_refused() -> None:
    with pytest.raises(ValidationError, match="go together"):
        Measurement(name="x", value=1.0, comparison=Comparison.AT_MOST, limit=1.0)


def test_a_limit_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValidationError, match="NaN"):
        judged(1.0, Comparison.AT_MOST, math.nan)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.1, 5e-324])
def test_every_float_survives_json(value: float) -> None:
    back = Measurement.model_validate_json(Measurement(name="x", value=value).model_dump_json()).value
    assert back == value or (math.isnan(back) and math.isnan(value))
