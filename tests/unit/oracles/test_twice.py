import numpy as np
import pytest

from kit.oracles.twice import FORWARD, SHUFFLED, OracleDisagreement, Summation, agreed

RANDOM = np.random.Generator(np.random.Philox(key=5))
LEFT, RIGHT = RANDOM.normal(size=(3, 4, 300)), RANDOM.normal(size=(3, 300, 2))


@pytest.mark.parametrize("sums", [FORWARD, SHUFFLED])
def test_both_orders_give_products_and_sums(sums: Summation) -> None:
    np.testing.assert_allclose(sums.contract(LEFT, RIGHT), LEFT @ RIGHT, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sums.total(LEFT)[..., 0], LEFT.sum(-1), rtol=0, atol=1e-12)


def test_the_two_computations_are_not_the_same_computation() -> None:
    """They differ in rounding: else the second would be no check of the first."""
    assert np.any(FORWARD.contract(LEFT, RIGHT) != SHUFFLED.contract(LEFT, RIGHT))


def test_agreement_gives_the_value() -> None:
    np.testing.assert_allclose(agreed("a product", lambda sums: sums.contract(LEFT, RIGHT)), LEFT @ RIGHT, atol=1e-12)


@pytest.mark.parametrize("difference", [1e-10, 1e-4, np.nan, np.inf])
def test_a_value_that_is_off_once_is_refused(difference: float) -> None:
    answers = iter([np.zeros(3), np.array([0.0, difference, 0.0])])
    with pytest.raises(OracleDisagreement, match="the oracle disagrees with itself on a value"):
        agreed("a value", lambda sums: next(answers))


def test_a_value_that_is_not_finite_is_refused() -> None:
    with pytest.raises(OracleDisagreement):
        agreed("a value", lambda sums: np.array([1.0, np.nan]))
