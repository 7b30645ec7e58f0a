"""``kit triage``: the verdict on a differing text, derived again from what a run left; and where else it is told."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kit.oracles.triage import BATCH_SIZES, Choice, Departure, Noise, Opinion, TextDifference, Variant, judge
from kit.results.bundle import pack
from kit.results.console import print_result
from kit.results.files import write_all
from kit.results.junit import to_junit
from kit.results.model import CaseResult, RunResult
from kit.results.report.render import to_html
from tests.jobs import kit
from tests.unit.results.report.samples import green

ALONE, LARGER = (5, 7, 9, 1), (5, 8, 2, 3)
CASE = "multi-lora/tiny-qwen3/base-text"


def found(gap: float) -> TextDifference:
    """The reference changes its second token between batch sizes 1 and 2, and the subject writes as in larger batches."""
    best, second = Choice(token=7, logprob=-0.7), Choice(token=8, logprob=-0.7 - gap)
    opinions = tuple(
        Opinion(who=who, best=best, second=second, subject=second.logprob, reference=best.logprob)
        for who in ("subject", "peer", "oracle")
    )
    departure = Departure(
        position=1, subject=8, reference=7, subject_text="a massive", reference_text="massive", opinions=opinions
    )
    return TextDifference(
        row="row 2 of batch 5 (base, base, base)",
        subject=LARGER,
        variants=(Variant(sizes=(1,), tokens=ALONE), Variant(sizes=BATCH_SIZES[1:], tokens=LARGER)),
        departures=(departure,),
        noise=Noise(batch=1e-3, oracle=2e-3, unit=1e-3),
    )


def evidence(gap: float) -> dict[str, Any]:
    difference = found(gap)
    judged = judge(difference)
    return {
        "texts_compared": 8,
        "triage": [{"row": difference.row, "verdict": judged.verdict.value, "reason": judged.reason}],
        "text_differences": [difference.model_dump(mode="json")],
    }


def result(told: dict[str, Any]) -> RunResult:
    made = green()
    first: CaseResult = made.cases[0]
    cases = (first.model_copy(update={"id": CASE, "evidence": told}), *made.cases[1:])
    return made.model_copy(update={"cases": cases})


def folder(place: Path, told: dict[str, Any]) -> Path:
    made = place / "run"
    made.mkdir()
    write_all(result(told), made)
    return made


@pytest.mark.parametrize(("gap", "code", "verdict"), [(0.004, 0, "reference drift"), (1.1, 1, "subject fault")])
def test_the_verdict_is_derived_again_with_its_table(tmp_path: Path, gap: float, code: int, verdict: str) -> None:
    done = kit("triage", str(folder(tmp_path, evidence(gap))), CASE)
    assert (done.returncode, done.stderr) == (code, "")
    for word in (f"row 2 of batch 5 (base, base, base): {verdict}", "1 of 8 texts", "noise floor 0.01 nat", "oracle"):
        assert word in done.stdout, done.stdout
    assert "reference in batches of 1: 5 7 9 1" in done.stdout
    assert "reference in batches of 2 to 16: 5 8 2 3, the subject's text" in done.stdout


def test_a_bundle_is_triaged_as_its_folder_is(tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in folder(tmp_path, evidence(1.1)).iterdir()}
    bundle = tmp_path / "run.tar.zst"
    bundle.write_bytes(pack(files, "kit-run", 0))
    of_bundle, of_folder = (kit("triage", str(run), CASE) for run in (bundle, tmp_path / "run"))
    assert of_bundle.returncode == of_folder.returncode == 1
    assert of_bundle.stdout == of_folder.stdout and "subject fault" in of_bundle.stdout


def test_a_verdict_that_does_not_follow_from_the_record_is_told(tmp_path: Path) -> None:
    told = evidence(1.1)
    told["triage"][0]["verdict"] = "near tie"
    done = kit("triage", str(folder(tmp_path, told)), CASE)
    assert done.returncode == 1 and "the run itself says 'near tie'" in done.stdout


def test_equal_texts_are_nothing_to_triage(tmp_path: Path) -> None:
    done = kit("triage", str(folder(tmp_path, {"texts_compared": 8})), CASE)
    assert done.returncode == 0 and "0 of 8 texts" in done.stdout


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    damaged = evidence(0.004)
    damaged["text_differences"][0]["subject"] = list(ALONE)
    run = folder(tmp_path, damaged)
    other = next(case.id for case in green().cases[1:])
    for arguments, words in (
        ((str(tmp_path / "nowhere"), CASE), "does not exist"),
        ((str(run), "multi-lora/tiny-qwen3/bse-text"), f"did you mean '{CASE}'"),
        ((str(run), other), "has compared no texts"),
        ((str(run), CASE), "cannot be judged"),
    ):
        done = kit("triage", *arguments)
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
        assert words in done.stderr


def test_terminal_junit_and_report_tell_it() -> None:
    run = result(evidence(0.004))
    stream = io.StringIO()
    print_result(run, Console(file=stream, width=200))
    assert f"{CASE}: triage: row 2 of batch 5 (base, base, base): reference drift" in stream.getvalue()
    assert b"[[PROPERTY|triage=row_2_of_batch_5_(base,_base,_base):_reference_drift" in to_junit(run)
    assert b"reference drift" in to_html(run)
