import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kit.errors import UsageFault
from kit.faults.catalogue import parse_fault
from kit.faults.switch import SwitchedSubject, engine_under
from kit.plan import CollectiveSession, SGLangSession
from kit.subjects import Subject, Workspace
from kit.subjects.collectives import Collectives
from kit.subjects.engine_life import EngineLife
from kit.subjects.null import NullSubject
from kit.subjects.session_adapters import original_adapters
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
    subject = Collectives(CollectiveSession(ranks=2, device="cpu"), facts={}, pipes=[])
    with pytest.raises(UsageFault, match="the faults of a Collectives cannot be changed; use 'kit run --inject'"):
        SwitchedSubject(subject, workspace(tmp_path)).under((MISSING,))


def test_an_engine_without_the_plugin_is_never_asked_under_a_fault(tmp_path: Path) -> None:
    session = SGLangSession(model="tiny-qwen3", adapters=(), dtype="float32", engine={})
    subject = SGLangSubject(session, workspace(tmp_path), EngineLife({}, print), facts={})
    with pytest.raises(RuntimeError, match="was not started to have its faults changed"):
        engine_under(subject, (MISSING,))


class Loading:
    """Stands for an engine: says of what it was given only where the files lay."""

    def __init__(self) -> None:
        self.loaded: dict[str, bytes] = {}

    def unload_lora_adapter(self, name: str) -> SimpleNamespace:
        del self.loaded[name]
        return SimpleNamespace(success=True)

    def load_lora_adapter(self, name: str, folder: str) -> SimpleNamespace:
        self.loaded[name] = (Path(folder) / "adapter_model.safetensors").read_bytes()
        return SimpleNamespace(success=True)

    def flush_cache(self) -> None:
        pass


def test_each_edition_has_weights_of_its_own_that_the_oracle_reads_too(assets: Path, tmp_path: Path) -> None:
    session = SGLangSession(model="tiny-qwen3", adapters=("adapter-0", "head"), dtype="float32", engine={})
    work = Workspace(assets, tmp_path, switched=True)
    engine: Any = Loading()
    originals = original_adapters(session, work)
    for name, folder in originals.items():
        engine.load_lora_adapter(name, str(folder))
    life: Any = SimpleNamespace(engine=engine)
    plugin: Any = SimpleNamespace(activate=lambda faults: None)
    first = SGLangSubject(session, work, life, facts={}, plugin=plugin)
    catalogue, switched = dict(engine.loaded), SwitchedSubject(first, work)
    seen = [catalogue]
    for edition in (1001, 1002):
        other = switched.under((), edition)
        assert isinstance(other, SGLangSubject)
        seen.append(dict(engine.loaded))
        for name in session.adapters:
            assert engine.loaded[name] == (other.adapter_folder(name) / "adapter_model.safetensors").read_bytes()
            scaled = json.loads((other.adapter_folder(name) / "adapter_config.json").read_text())
            original = json.loads((originals[name] / "adapter_config.json").read_text())
            assert (scaled["r"], scaled["lora_alpha"]) == (original["r"], original["lora_alpha"])
    assert len({weights["adapter-0"] for weights in seen}) == len({weights["head"] for weights in seen}) == 3
    assert [path.name for path in (tmp_path / "editions").iterdir()] == ["1002"]
    switched.under(())
    assert engine.loaded == catalogue
