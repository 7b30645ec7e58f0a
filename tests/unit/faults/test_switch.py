from pathlib import Path
from typing import cast

import pytest

from kit.errors import UsageFault
from kit.faults.catalogue import parse_fault
from kit.faults.switch import SwitchedSubject, engine_under
from kit.plan import SGLangSession
from kit.subjects import Subject, Workspace
from kit.subjects.engine_life import EngineLife
from kit.subjects.kernels.subject import LoraSubject
from kit.subjects.null import NullSubject
from kit.subjects.sglang_engine import SGLangSubject

KILLED = parse_fault("process-killed")
MISSING = parse_fault("adapter-missing")


def workspace(folder: Path) -> Workspace:
    return Workspace(folder, folder, switched=True)


def test_without_faults_a_subject_is_as_it_was_opened(tmp_path: Path) -> None:
    subject = cast("Subject", object())
    assert SwitchedSubject(subject, workspace(tmp_path)).under(()) is subject


def test_the_subject_that_computes_nothing_acts_by_its_case_alone(tmp_path: Path) -> None:
    subject = NullSubject(facts={})
    assert SwitchedSubject(subject, workspace(tmp_path)).under((KILLED,)) is subject


def test_a_subject_that_cannot_change_its_faults_says_so(tmp_path: Path) -> None:
    subject = LoraSubject(library=None, experts=None, device="cpu", facts={})  # type: ignore[arg-type]
    with pytest.raises(UsageFault, match="the faults of a LoraSubject cannot be changed; use 'kit run --inject'"):
        SwitchedSubject(subject, workspace(tmp_path)).under((MISSING,))


def test_an_engine_without_the_plugin_is_never_asked_under_a_fault(tmp_path: Path) -> None:
    session = SGLangSession(model="tiny-qwen3", adapters=(), dtype="float32", engine={})
    subject = SGLangSubject(session, workspace(tmp_path), EngineLife({}, print), facts={})
    with pytest.raises(RuntimeError, match="was not started to have its faults changed"):
        engine_under(subject, (MISSING,))
