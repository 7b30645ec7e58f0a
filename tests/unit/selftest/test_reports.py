from pathlib import Path

import pytest

from kit.faults.report_catalogue import REPORT_FAULTS
from kit.host.planner import Selection
from kit.results.sums import read_folder
from kit.selftest.reports import ALTERATIONS, report_outcomes
from tests.unit.results.runs import Staged
from tests.unit.results.test_verify import one_red

SOME = Selection(cases=("lora-logprob/tiny-qwen3/base", "lora-logprob/tiny-qwen3/adapter-0"))


def test_every_fault_of_the_catalogue_is_acted_on() -> None:
    assert ALTERATIONS.keys() == {kind.name for kind in REPORT_FAULTS}


def test_verify_refuses_every_altered_record(tmp_path: Path) -> None:
    Staged(selection=SOME, measure=one_red).write(tmp_path / "run")
    found = {outcome.name: outcome.verdict for outcome in report_outcomes(read_folder(tmp_path / "run"))}
    without_a_fault = {"report-plan-altered"}
    assert found == dict.fromkeys(ALTERATIONS.keys() - without_a_fault, "caught")


def test_an_alteration_that_nobody_sees_is_not_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Staged(selection=SOME, measure=one_red).write(tmp_path / "run")
    monkeypatch.setitem(ALTERATIONS, "report-event-lost", lambda files: files.update({"logs/more.log": b"more"}))
    (kind,) = (kind for kind in REPORT_FAULTS if kind.name == "report-event-lost")
    (outcome,) = report_outcomes(read_folder(tmp_path / "run"), (kind,))
    assert outcome.verdict == "not caught"
