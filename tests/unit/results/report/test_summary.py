"""The Markdown summary: short, complete where it matters, and any text harmless."""

from pathlib import Path

import pytest

from kit.errors import ExitCode
from kit.results.model import Status
from kit.results.report.sentence import TITLES
from kit.results.report.summary import VARIABLE, append_summary, to_markdown
from tests.unit.results.report.samples import BY_CODE, case, green, incomplete, measured, red, result


@pytest.mark.parametrize("code", list(BY_CODE))
def test_the_verdict_is_the_heading(code: ExitCode) -> None:
    heading = to_markdown(BY_CODE[code]).splitlines()[0]
    assert heading.startswith("## ✅ " if code is ExitCode.CONFORMS else "## ❌ ")
    assert TITLES[code].replace(":", "\\:") in heading


def test_what_did_not_pass_is_a_table_with_what_to_try() -> None:
    text = to_markdown(red())
    assert "**FAULT INJECTED ON PURPOSE: adapter\\-scaling = 1.1.**" in text
    rows = [line for line in text.splitlines() if line.startswith("| <code>")]
    assert len(rows) == 2 and rows[0].startswith(
        "| <code>lora-logprob/tiny/adapter-0</code> | failed | "
        "the adapter acts with another strength than it should; max\\_abs\\_error"
    )
    assert "No GPU took part" in text
    assert "| case |" not in to_markdown(green())
    assert "crashed" in to_markdown(incomplete())


def test_text_is_harmless_and_rows_stay_rows() -> None:
    wild = "a|b\n<img src=x> `c` [d](e) @all \x1b[31m"
    text = to_markdown(result(case(f"kernels/{wild}/b", Status.CRASHED, reason=wild)))
    row = next(line for line in text.splitlines() if line.startswith("| <code>"))
    assert "<img" not in text and "\x1b" not in text
    assert row.replace("\\|", "").count("|") == 5


def test_a_large_run_gives_a_short_summary() -> None:
    cases = [case(f"kernels/a/{n}", Status.FAILED, measured("e", 3.0), reason="e") for n in range(10_000)]
    text = to_markdown(result(*cases))
    assert "and 9,950 more" in text and len(text) < 60_000


def test_it_is_appended_where_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert append_summary(green()) is None
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    monkeypatch.setenv(VARIABLE, str(path))
    assert append_summary(green()) == path
    assert path.read_text() == "before\n" + to_markdown(green())


def test_lost_reports_are_not_told_as_a_green_run() -> None:
    text = to_markdown(green(), lost="junit.xml could not be written: the disk is full")
    assert text.startswith("## ❌ Reports lost") and "the disk is full" in text
    assert "✅" not in text and "exit code" not in text
