"""Stand-ins for modules that a profile's stack lacks: one folder each, on the import path of a session's processes.

A stand-in never hides a real module that works: where the real one imports, it is used, and the session's facts say so.
"""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from kit.plan import StandIn

_FOLDER = Path(__file__).resolve().parent
_PINNED_MEMORY = "pinned_memory"


def activate(names: Iterable[StandIn]) -> dict[str, str]:
    """Put stand-ins in place for this process and those that it starts, before torch or SGLang is imported.

    Returns:
        Facts, ``stand_in.<name>`` with what is in use and why.
    """
    facts = {}
    for name in names:
        folder = _FOLDER / name
        used, facts[f"stand_in.{name}"] = _judge(name, folder)
        if used:
            _put_on_path(folder)
            if name == _PINNED_MEMORY:
                load_hook(folder / "sitecustomize.py")
    return facts


def load_hook(path: Path) -> ModuleType:
    """Run the hook of `pinned_memory` in this process, where Python has looked for a sitecustomize already."""
    spec = importlib.util.spec_from_file_location("kit_pinned_memory_stand_in", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _judge(name: str, folder: Path) -> tuple[bool, str]:
    if name == _PINNED_MEMORY:
        return True, "in use where torch has no accelerator"
    real = _real_module(name, folder)
    if real is None:
        return True, "in use: the real module is not installed"
    trial = subprocess.run(
        [sys.executable, "-c", f"import {name}"], env=_without(folder), capture_output=True, text=True, timeout=300
    )
    if trial.returncode == 0:
        return False, f"not in use: the real module at {real} imports"
    last = (trial.stderr.strip().splitlines() or [f"exit code {trial.returncode}"])[-1]
    return True, f"in use: the real module at {real} does not import: {last}"


def _real_module(name: str, folder: Path) -> str | None:
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]
    spec = importlib.machinery.PathFinder.find_spec(name, elsewhere)
    return None if spec is None else str(spec.origin)


def _without(folder: Path) -> dict[str, str]:
    entries = [e for e in os.environ.get("PYTHONPATH", "").split(os.pathsep) if e and Path(e).resolve() != folder]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entries)}


def _put_on_path(folder: Path) -> None:
    text = str(folder)
    if text not in sys.path:
        sys.path.insert(0, text)
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != text]
    os.environ["PYTHONPATH"] = os.pathsep.join([text, *entries])
