import ast
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.errors import EnvironmentFault
from kit.faults.catalogue import FAULTS, parse_fault
from kit.faults.engine import hooks
from kit.faults.engine_active import ActiveFaults, mark, write_active
from kit.faults.engine_batches import BATCH_FAULTS
from kit.faults.engine_plugin import GROUP, NAME, install_plugin, needs_plugin

GROWS = parse_fault("decode-error-grows=0.01")
SCALED = parse_fault("adapter-scaling=2")


@pytest.fixture(autouse=True)
def unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import path and the environment are as before after each test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("PYTHONPATH", "SGLANG_PLUGINS", "KIT_ENGINE_FAULTS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


def test_only_faults_inside_the_engine_need_the_plugin() -> None:
    assert needs_plugin((SCALED, GROWS))
    assert not needs_plugin((SCALED,))
    assert not needs_plugin(())


def test_every_process_finds_the_plugin_and_its_faults(tmp_path: Path) -> None:
    plugin = install_plugin((SCALED, GROWS), tmp_path)
    found = importlib.metadata.entry_points(group=GROUP, name=NAME)
    assert [entry.value for entry in found] == ["kit.faults.engine:register"]
    asked = f"from importlib.metadata import entry_points; print(entry_points(group='{GROUP}', name='{NAME}'))"
    told = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    assert "kit.faults.engine:register" in told
    assert ActiveFaults(plugin.folder).strengths == {"decode-error-grows": 0.01}


def test_a_choice_of_plugins_keeps_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLUGINS", "other")
    install_plugin((GROWS,), tmp_path)
    assert os.environ["SGLANG_PLUGINS"] == f"other,{NAME}"


def test_active_faults_are_read_again_when_they_change_and_memory_starts_anew(tmp_path: Path) -> None:
    write_active(tmp_path, {"batch-slot-zero": 1.0})
    active = ActiveFaults(tmp_path)
    assert active.strengths == {"batch-slot-zero": 1.0}
    active.memory["steps"] = 3
    assert active.strengths and active.memory == {"steps": 3}
    write_active(tmp_path, {})
    assert active.strengths == {} and active.memory == {}


def test_an_engine_without_the_hooks_is_refused(tmp_path: Path) -> None:
    plugin = install_plugin((GROWS,), tmp_path)
    with pytest.raises(EnvironmentFault, match="0 of 1 schedulers of the engine loaded the injected faults"):
        plugin.confirm(schedulers=1)
    wanted = sorted(hooks(ActiveFaults(plugin.folder)))
    mark(plugin.folder, wanted)
    with pytest.raises(EnvironmentFault, match="0 of 1 schedulers"):
        plugin.confirm(schedulers=1)  # this very process is no scheduler
    (plugin.folder / "loaded-1").write_text("\n".join(wanted))
    plugin.confirm(schedulers=1)
    with pytest.raises(EnvironmentFault, match="1 of 2 schedulers"):
        plugin.confirm(schedulers=2)
    (plugin.folder / "loaded-2").write_text("\n".join(wanted[1:]))
    with pytest.raises(EnvironmentFault, match=f"this SGLang lacks what a fault acts on: {wanted[0]}"):
        plugin.confirm(schedulers=2)


@pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="SGLang is not installed")
@pytest.mark.parametrize("target", sorted(hooks(ActiveFaults(Path()))))
def test_the_installed_sglang_has_what_is_hooked(target: str) -> None:
    found = importlib.util.find_spec("sglang")
    assert found is not None and found.origin is not None
    module, owner, function = target.rsplit(".", 2)
    source = Path(found.origin).parent.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text()
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    assert function in {node.name for node in classes[owner].body if isinstance(node, ast.FunctionDef)}


def test_every_fault_inside_the_engine_is_acted_on() -> None:
    """Each name stands in a module that SGLang's processes load."""
    folder = Path(str(importlib.util.find_spec("kit.faults.engine").origin)).parent  # type: ignore[union-attr]
    acted = "".join((folder / f"engine_{part}.py").read_text() for part in ("loads", "answers"))
    for name, kind in FAULTS.items():
        if kind.acts_on == "engine":
            assert name in BATCH_FAULTS or f'"{name}"' in acted, name
