"""Ten thousand cases through every report and into a bundle, measured in a process of its own.

``python -m tests.unit.results.many FOLDER`` prints seconds by step and the greatest memory, as JSON.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kit.attention_spec import GroupedDecode
from kit.plan import Case, KernelSession, Plan, Session
from kit.results.bundle import make_bundle
from kit.results.junit import to_junit
from tests.unit.results.runs import Staged, measured

CASES = 10_000
SESSIONS = 10
Made = TypeVar("Made")


@dataclass(frozen=True)
class Many(Staged):
    """A run of so many kernels; every tenth fails."""

    def plan(self) -> Plan:
        spec = KernelSession(library="triton", interpreted=True)
        shape = GroupedDecode(query_heads=16, kv_heads=1, head_dim=576, value_dim=512, lengths=(128,) * 3)
        sessions = [Session(id=f"k{n}", spec=spec, start_seconds=9, case_seconds=9) for n in range(SESSIONS)]
        cases = [
            Case(id=f"kernels/k{n % SESSIONS}/shape-{n}", session=f"k{n % SESSIONS}", spec=shape) for n in range(CASES)
        ]
        return super().plan().model_copy(update={"sessions": tuple(sessions), "cases": tuple(cases)})


def peak_memory() -> int:
    """Bytes. Not getrusage: its figure is inherited from the process that started this one."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def main(place: Path) -> None:
    """Write and bundle; print what it took."""
    seconds: dict[str, float] = {}
    folder = place / "run"

    def step(name: str, action: Callable[[], Made]) -> Made:
        begin = time.process_time()
        made = action()
        seconds[name] = round(time.process_time() - begin, 2)
        return made

    result = Many(measure=lambda case: measured(case, 50.0 if case.id.endswith("7") else 1.0)).write(folder)
    step("result", result.to_json)
    step("junit", lambda: to_junit(result))
    bundle = step("bundle", lambda: make_bundle(folder))
    sizes = {path.name: path.stat().st_size for path in [*folder.iterdir(), bundle]}
    memory = peak_memory()
    print(json.dumps({"seconds": seconds, "memory": memory, "sizes": sizes}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
