"""A part of a profile is never told as the profile: the plan counts what was left out, and every report says it."""

import io
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from kit.host.planner import Selection, make_plan
from kit.plan import Plan
from kit.profile import find_profile
from kit.results.bundle import make_bundle
from kit.results.console import print_result, verdict_line
from kit.results.model import RunResult
from kit.results.report.render import to_html
from kit.results.report.summary import to_markdown
from kit.results.stored import as_json
from tests.unit.results.runs import Staged, measured

TWO = Selection(cases=("lora-logprob/tiny-qwen3/base", "lora-logprob/tiny-qwen3/adapter-0"))
ALL = len(make_plan(find_profile("cpu"), Selection(), "x").cases)
SAID = f"2 of {ALL} cases"


@pytest.fixture
def part(tmp_path: Path) -> RunResult:
    return Staged(selection=TWO).write(tmp_path / "run")


def test_the_plan_counts_what_it_left_out() -> None:
    profile = find_profile("cpu")
    assert make_plan(profile, TWO, "x").omitted == ALL - 2
    assert make_plan(profile, Selection(), "x").omitted == 0


def test_a_plan_of_an_earlier_kit_is_read() -> None:
    told = make_plan(find_profile("cpu"), Selection(), "x")
    older = as_json(told).replace(b' "omitted": 0,\n', b"")
    assert b"omitted" not in older
    assert Plan.model_validate_json(older) == told


def test_the_verdict_line(part: RunResult) -> None:
    assert verdict_line(part) == f"THE CASES THAT WERE CHOSEN CONFORM, {SAID} planned (exit code 0): 2 passed"
    stream = io.StringIO()
    print_result(part, Console(file=stream, width=80), lost="the disk is full")
    assert stream.getvalue().splitlines()[-1].startswith(f"REPORTS LOST, {SAID} planned (exit code 3)")


def test_a_red_part(tmp_path: Path) -> None:
    red = Staged(selection=TWO, measure=lambda case: measured(case, 50.0)).write(tmp_path / "run")
    assert verdict_line(red) == f"DOES NOT CONFORM, {SAID} planned (exit code 1): 2 failed"
    assert f"Only {SAID} of the profile were planned. 2 of 2 cases failed" in to_html(red).decode()


def test_warning_report_and_summary(part: RunResult) -> None:
    assert any(text.startswith(f"only {SAID} of the profile were planned") for text in part.warnings)
    page = to_html(part).decode()
    assert "<h1>The cases that were chosen conform</h1>" in page and f"Only {SAID} of the profile" in page
    assert "The cases that were chosen conform" in to_markdown(part)


def test_junit(part: RunResult, tmp_path: Path) -> None:
    root = ElementTree.parse(tmp_path / "run" / "junit.xml").getroot()
    told = {item.get("name"): item.get("value") for item in root.iter("property")}
    assert (told["planned"], told["omitted"]) == ("2", str(ALL - 2))


def test_it_can_be_handed_over(part: RunResult, tmp_path: Path) -> None:
    assert make_bundle(tmp_path / "run").exists()


def test_a_whole_run_says_nothing_of_it(tmp_path: Path) -> None:
    whole = Staged().write(tmp_path / "run")
    assert whole.warnings == ()
    assert verdict_line(whole).startswith("CONFORMS (exit code 0)")
