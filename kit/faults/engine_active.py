"""Which faults are active in the engine's processes: a file that the session writes and hooks read again whenever it changes."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "KIT_ENGINE_FAULTS"
"""Environment variable: folder of the file of active faults and of the marks that processes leave."""

_FILE = "active.json"
_MARK = "loaded-"


@dataclass
class ActiveFaults:
    """The active faults as a process of the engine sees them.

    Attributes:
        memory: what a hook remembers between calls, by fault; empty again when the active faults change.
    """

    folder: Path
    memory: dict[str, Any] = field(default_factory=dict)
    _read: int = 0
    _strengths: dict[str, float] = field(default_factory=dict)

    @property
    def strengths(self) -> dict[str, float]:
        """Strength of each active fault, by name."""
        path = self.folder / _FILE
        changed = path.stat().st_mtime_ns
        if changed != self._read:
            self._strengths = json.loads(path.read_text())
            self.memory.clear()
            self._read = changed
        return self._strengths


def write_active(folder: Path, strengths: dict[str, float]) -> None:
    """Make these faults, and no others, the active ones from the next call of a hook on."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{_FILE}.new"
    fresh.write_text(json.dumps(strengths))
    fresh.replace(folder / _FILE)


def mark(folder: Path, hooked: list[str]) -> None:
    """Leave word that this process has these functions hooked."""
    (folder / f"{_MARK}{os.getpid()}").write_text("\n".join(sorted(hooked)))


def marked(folder: Path) -> dict[int, tuple[str, ...]]:
    """Hooked functions of each process that left word, by process id."""
    found = folder.glob(f"{_MARK}*")
    return {int(path.name.removeprefix(_MARK)): tuple(path.read_text().split()) for path in found}
