"""ROUGE-L on characters: values worked by hand, and the figure that upstream published."""

import pytest

from kit.oracles.rouge import rouge_l


@pytest.mark.parametrize(
    ("left", "right", "score"),
    [
        ("abcd", "abcd", 1.0),
        ("abcd", "efgh", 0.0),
        ("abcd", "abd", 6 / 7),  # 2 · 3 / (4 + 3)
        ("abcd", "dcba", 0.25),
        ("", "abc", 0.0),
        ("", "", 0.0),
    ],
)
def test_worked_by_hand(left: str, right: str, score: float) -> None:
    assert rouge_l(left, right) == pytest.approx(score, abs=1e-15)
    assert rouge_l(right, left) == pytest.approx(score, abs=1e-15)


def test_upstreams_word_is_worth_what_one_word_of_characters_is() -> None:
    """ "massive amounts of" for "a massive amount of": 1 character less and 2 more, around a common part of L: 2 L / (2 L + 3)."""
    left, right = "trained on massive amounts of data", "trained on a massive amount of data"
    common = len(left) - 1
    assert rouge_l(left, right) == pytest.approx(2 * common / (2 * common + 3))
