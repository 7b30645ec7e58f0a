import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.synthetic.draws import below
from kit.synthetic.prompts import prompts
from kit.synthetic.stream import LARGEST, bell, words


def test_words_are_numpys_published_philox_stream() -> None:
    """Known answer of Philox4x64-10 for key 0 and counter 0 in Random123 (kat_vectors); numpy counts up first."""
    found = np.random.Philox(key=0, counter=2**256 - 1).random_raw(4)
    assert [f"{int(w):016x}" for w in found] == [
        "16554d9eca36314c",
        "db20fe9d672d0fdc",
        "d7e772cee186176b",
        "7e68b68aec7ba23b",
    ]


def test_streams_of_different_labels_differ() -> None:
    assert not np.array_equal(words("a", 8), words("b", 8))


@settings(deadline=None)
@given(std=st.floats(1e-3, 100.0), label=st.text(max_size=5))
def test_values_are_small_integers_on_a_power_of_two_grid(std: float, label: str) -> None:
    values = bell(label, 64, std)
    exponent = next(e for e in range(-20, 30) if np.all(np.ldexp(values, e) == np.rint(np.ldexp(values, e))))
    assert np.max(np.abs(np.ldexp(values, exponent))) <= LARGEST


@pytest.mark.parametrize("std", [1.0, 0.0625, 0.075, 0.3])
def test_values_look_normal(std: float) -> None:
    values = bell("statistics", 200_000, std).astype(np.float64)
    assert abs(values.mean()) < 4 * std / np.sqrt(len(values))
    assert values.std() == pytest.approx(std, rel=0.01)
    within = np.mean(np.abs(values) < std)
    assert within == pytest.approx(0.67, abs=0.015)  # 0.683 for a normal distribution, 0.666 for four uniform parts


def test_a_grid_that_cannot_hold_the_deviation_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        bell("x", 1, 1.0, exponent=20)


@settings(deadline=None)
@given(limit=st.integers(1, 2**32), seed=st.integers(0, 1000))
def test_integers_stay_below_their_limit(limit: int, seed: int) -> None:
    assert all(0 <= value < limit for value in below(f"{seed}", 20, limit))


def test_integers_cover_their_range_evenly() -> None:
    counts = np.bincount(below("cover", 40_000, 10), minlength=10)
    assert counts.sum() == 40_000
    assert np.all(np.abs(counts - 4_000) < 5 * np.sqrt(4_000))


def test_prompts_have_their_lengths_and_ignore_each_other() -> None:
    long, short = prompts([33, 17], 2048, seed=1)
    assert (len(long), len(short)) == (33, 17)
    assert prompts([5, 17], 2048, seed=1)[1] == short
    assert prompts([5], 2048, seed=1)[0] == long[:5]
    assert prompts([33], 2048, seed=2)[0] != long
