"""Text made fit for XML, terminals and one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from kit.measurement import Comparison, LimitSource, Measurement
from kit.results.text import capped, describe, number, one_line, printable

ANY_TEXT = st.text(st.characters())


@given(ANY_TEXT)
def test_printable_text_is_xml(text: str) -> None:
    element = etree.Element("a")
    element.text = printable(text)
    assert etree.fromstring(etree.tostring(element)).text in (printable(text), printable(text) or None)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\x00b", "a\\x00b"),
        ("\ud800", "\\ud800"),
        ("\ufffe\uffff", "\\ufffe\\uffff"),
        ("\U0001ffff", "\\U0001ffff"),
        ("\u202eevil", "\\u202eevil"),
        ("two\r\nlines\rmore\tin ½Δ² 漢字 🙂", "two\nlines\nmore\tin ½Δ² 漢字 🙂"),
    ],
)
def test_what_is_not_printable_is_shown_as_its_escape(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@given(ANY_TEXT, st.integers(5, 50))
def test_one_line_is_one_line_of_at_most_its_length(text: str, longest: int) -> None:
    line = one_line(text, longest)
    assert len(line) <= longest
    assert line.splitlines() in ([], [line])


def test_the_end_of_a_long_text_is_kept_and_the_rest_pointed_to() -> None:
    text = "\n".join(f"line {n}" for n in range(1000))
    kept = capped(text, 100, "logs/s.log")
    assert "logs/s.log" in kept.splitlines()[0]
    assert kept.splitlines()[-1] == "line 999"
    assert len(kept) < 200
    assert capped("short", 100, "logs/s.log") == "short"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (1234567.0, "1.23e+06"), (0.00012345, "0.000123"), (float("nan"), "NaN"), (float("-inf"), "-inf")],
)
def test_numbers(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_measurement_in_one_clause() -> None:
    judged = Measurement(
        name="effect_slope", value=0.5, comparison=Comparison.AT_LEAST, limit=0.9, source=LimitSource.EFFECT
    )
    assert describe(judged) == "effect_slope = 0.5, limit >= 0.9 (effect), margin ×0.556"
    assert describe(Measurement(name="peer", value=2.0, unit="nat")) == "peer = 2 nat"
    placed = judged.model_copy(update={"where": "row 3"})
    assert describe(placed) == "effect_slope = 0.5, limit >= 0.9 (effect), margin ×0.556 [row 3]"
