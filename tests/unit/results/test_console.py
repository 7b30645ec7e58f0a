"""The result as a reader sees it: at 80 columns, in a pipe, and whatever stands in it."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from kit.events import CaseStarted
from kit.results.console import print_result, verdict_line
from kit.results.model import RunResult
from tests.unit.results.streams import (
    KERNEL,
    LORA,
    MIXED,
    case_events,
    death,
    judged,
    one_case,
    plan,
    session_events,
    waiver,
    worker,
)


def shown(result: RunResult, files: tuple[Path, ...] = (), encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_result(result, Console(file=stream, width=80), files)
    stream.flush()
    stream.seek(0)
    return stream.read()


def mixed_result() -> RunResult:
    planned = plan({"s": [LORA, MIXED], "t": [KERNEL, f"{KERNEL}b", f"{KERNEL}c"]}, faults=("adapter-scaling",))
    events = worker(
        session_events("s", case_events("s", LORA, 2.5e-4), case_events("s", MIXED, float("nan"))),
        session_events("t", [CaseStarted(session="t", case=KERNEL)], end=death("t", "SIGSEGV")),
    )
    return judged(planned, events)


def row(text: str, case: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(case)).split()


def test_value_limit_source_and_margin_of_each_case() -> None:
    text = shown(mixed_result())
    assert row(text, LORA) == [LORA, "passed", "0.00025", "nat", "<=", "1", "peer", "×4e+03"]
    assert row(text, MIXED) == [MIXED, "failed", "NaN", "nat", "<=", "1", "peer", "×0"]
    assert row(text, KERNEL) == [KERNEL, "crashed"]


def test_reasons_warnings_limits_of_proof_files_and_verdict() -> None:
    text = shown(mixed_result(), files=(Path("/results/a-folder-with-a-long-name") / ("x" * 80) / "junit.xml",))
    flat = " ".join(text.split())
    assert "SIGSEGV" in flat
    assert f"{KERNEL}b and 1 more: missing: not run: session t crashed: SIGSEGV" in flat
    assert "FAULT INJECTED ON PURPOSE: adapter-scaling" in flat
    assert "No GPU took part" in flat
    assert any(line.endswith("/junit.xml") and "a-folder" in line for line in text.splitlines()), "a path is not broken"
    assert text.splitlines()[-1] == "INCOMPLETE (exit code 5): 1 passed, 1 failed, 1 crashed, 2 missing"


def test_it_fits_80_columns_without_colour() -> None:
    long_id = "kernels/triton-grouped-decode/" + "b2-h128-kv1-d576-v512-" * 5
    result = judged(plan({"s": [long_id]}), worker(session_events("s", case_events("s", long_id, 1.25))))
    text = shown(result)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert long_id in "".join(line[:44].strip() for line in text.splitlines()), "a long id is folded, not cut"


def test_markup_and_controls_in_a_reason_are_text() -> None:
    events = worker(
        session_events("s", [CaseStarted(session="s", case=KERNEL)], end=death("s", "[bold]\x1b]0;x\x07[/]"))
    )
    text = shown(judged(plan({"s": [KERNEL]}), events))
    assert "[bold]\\x1b]0;x\\x07[/]" in text


def test_a_terminal_without_these_signs_still_gets_the_result() -> None:
    text = shown(mixed_result(), encoding="ascii")
    assert "x4e+03" in text and "exit code 5" in text


@pytest.mark.parametrize(
    ("value", "waived", "line"),
    [
        (0.5, False, "CONFORMS (exit code 0): 1 passed"),
        (2.0, False, "DOES NOT CONFORM (exit code 1): 1 failed"),
        (2.0, True, "CONFORMS (exit code 0): 1 waived"),
        (0.5, True, "CONFORMS (exit code 0): 1 unexpected-pass"),
    ],
)
def test_verdict_line(value: float, waived: bool, line: str) -> None:
    _, result = one_case(value, waivers=[waiver()] if waived else [])
    assert verdict_line(result) == line


def test_too_many_cases_to_read_show_first_what_did_not_pass() -> None:
    ids = [f"kernels/triton/shape-{n}" for n in range(5000)]
    cases = (case_events("s", name, 9.0 if name.endswith("-4321") else 0.1) for name in ids)
    lines = shown(judged(plan({"s": ids}), worker(session_events("s", *cases)))).splitlines()
    assert lines[1].split()[:2] == ["kernels/triton/shape-4321", "failed"]
    assert len(lines) < 500
    assert any(line.startswith("and 4600 more cases") for line in lines)


def test_no_case_at_all() -> None:
    text = shown(judged(plan({}), worker()))
    assert "problem: no case was planned" in text
    assert text.splitlines()[-1] == "INCOMPLETE (exit code 5): 1 problem of the run"


@pytest.mark.parametrize("value", [0.5, 2.0])
def test_lost_reports_are_the_verdict_and_its_exit_code(value: float) -> None:
    stream = io.StringIO()
    _, result = one_case(value)
    print_result(result, Console(file=stream, width=80), lost="junit.xml could not be written: the disk is full")
    text = stream.getvalue()
    assert text.splitlines()[-1].startswith("REPORTS LOST (exit code 3): 1 ")
    assert "the disk is full" in text
    assert "CONFORM" not in text and text.count("exit code") == 1
