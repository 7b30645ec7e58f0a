"""What is wrong with an adapter is said in words before the numbers, in every report."""

import io
import math
from xml.etree import ElementTree

import pytest
from rich.console import Console

from kit.events import AnyEvent, CaseFinished, CaseStarted
from kit.measurement import Comparison, LimitSource, Measurement
from kit.oracles.limits import context, effect_size, effect_slope
from kit.results.console import print_result
from kit.results.junit import to_junit
from kit.results.model import RunResult
from kit.results.plain import in_words
from kit.results.report.hints import Hints
from kit.results.report.render import to_html
from kit.results.report.sentence import verdict_sentence
from kit.results.report.summary import to_markdown
from kit.waiver import Waiver
from tests.unit.results.streams import LORA, judged, plan, session_events, waiver, worker

SAID = "the adapter acts 1.10 times as strongly as it should"


def told(slope: float, effect: float = 1.0, wrong: int = 0) -> tuple[Measurement, ...]:
    return (
        Measurement(
            name="wrong_tokens",
            value=wrong,
            unit="count",
            comparison=Comparison.EQUAL,
            limit=0,
            source=LimitSource.EXACT,
        ),
        effect_size("effect", effect, 1.0),
        effect_slope("effect_slope_off_one", slope, 1e-3, 1.0),
        context("effect_slope", slope, "1"),
    )


def run_of(measurements: tuple[Measurement, ...], faults: tuple[str, ...] = (), *waivers: Waiver) -> RunResult:
    events: list[AnyEvent] = [
        CaseStarted(session="s", case=LORA),
        CaseFinished(session="s", case=LORA, seconds=1.0, measurements=measurements),
    ]
    return judged(plan({"s": [LORA]}, faults=faults), worker(session_events("s", events)), waivers=waivers)


@pytest.mark.parametrize(
    ("measurements", "words"),
    [
        (told(1.1), SAID),
        (told(0.9), "the adapter acts 0.90 times as strongly as it should"),
        (told(1.0021), "the adapter acts 1.002 times as strongly as it should"),
        (told(0.02, effect=0.0), "the adapter has no or too little effect"),
        (told(math.nan, effect=0.0), "the adapter has no or too little effect"),
        (told(0.6, effect=0.36), "the adapter has too little effect: it acts 0.60 times as strongly as it should"),
        (told(0.1), "something acts, but not as this adapter should (slope 0.1): is another adapter in use?"),
        (told(1.1)[:3], "the adapter acts with another strength than it should"),
        (told(1.0005), ""),
        (told(1.1, wrong=3), ""),
        ((), ""),
    ],
)
def test_words(measurements: tuple[Measurement, ...], words: str) -> None:
    assert in_words(measurements) == words


def test_every_report_says_it_first_and_then_the_number() -> None:
    result = run_of(told(1.1))
    assert result.cases[0].reason.startswith(f"{SAID}; effect_slope_off_one = 0.1, limit <= 0.001")
    failure = ElementTree.fromstring(to_junit(result)).find(".//failure")
    assert failure is not None and failure.get("message") == result.cases[0].reason
    assert (failure.text or "").splitlines()[0].startswith(SAID)
    assert f"{LORA}: {SAID}; effect_slope_off_one = 0.1" in verdict_sentence(result)
    assert to_html(result).decode().count(f"{SAID}; effect_slope_off_one") == 3, "sentence, lead, case"
    assert f"{SAID}; effect" in to_markdown(result).replace("\\", "")
    stream = io.StringIO()
    print_result(result, Console(file=stream, width=200))
    assert f"{LORA}: failed: {SAID}; effect_slope_off_one" in stream.getvalue()


def test_an_injected_fault_keeps_the_ordinary_hint_behind_its_own() -> None:
    result = run_of(told(1.1), ("adapter-scaling",))
    first, second, *_ = Hints(result).of(result.cases[0])
    assert "injected on purpose" in first and "check scaling" in second
    for text in (to_html(result).decode().partition("</header>")[0], to_markdown(result).replace("\\", "")):
        assert "injected on purpose" in text and "check scaling" in text


def test_a_waived_case_says_once_that_it_is_waived() -> None:
    stream = io.StringIO()
    print_result(run_of(told(1.1), (), waiver(LORA)), Console(file=stream, width=200))
    (line,) = [line for line in stream.getvalue().splitlines() if "waived by" in line]
    assert line.startswith(f"{LORA}: waived by known-fault until 2027-01-31: {SAID}")
