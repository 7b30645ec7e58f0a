"""Makes the small JSON of docs/results from a results folder: values, limits, versions and times; no evidence, no paths.

scripts/small_result.py FOLDER OUTPUT.JSON
"""

import json
import sys
from pathlib import Path

from kit.events import AnyEvent, EventReader
from kit.plan import Plan
from kit.results.model import CaseResult, RunResult, load_result
from kit.worker.packing import measured as measured_packing

VERSIONS = (
    "sglang",
    "sglang-kernel",
    "torch",
    "triton",
    "transformers",
    "peft",
    "numpy",
    "cuda",
    "device",
    "architecture",
)


def small(result: RunResult, plan: Plan, events: list[AnyEvent]) -> dict[str, object]:
    """What docs/results keeps of a run."""
    packing = measured_packing(plan, events)
    facts = {name: value for session in result.sessions for name, value in session.facts.items()} | result.worker
    return {
        "profile": result.profile.name,
        "runtime": result.runtime,
        "exit_code": int(result.exit_code),
        "seconds": round(result.finished - result.started, 1),
        "sessions": {
            "seconds": packing and round(packing.makespan, 1),
            "lower_bound": packing and round(packing.bound, 1),
            "ready_after": {s.id: round(s.ready_seconds, 1) for s in result.sessions if s.ready_seconds is not None},
        },
        "versions": {name: facts[name] for name in VERSIONS if name in facts},
        "driver": {name: value for name, value in result.host.items() if name.startswith("driver.")},
        "injected": {fault.name: fault.strength for fault in result.faults},
        "statuses": {status.value: count for status, count in result.counts.items()},
        "cases": {case.id: measured(case) for case in result.cases},
    }


def measured(case: CaseResult) -> dict[str, object]:
    """Status, and value and limit of everything that is judged."""
    numbers = {
        m.name: [float(f"{m.value:.4g}"), float(f"{m.limit:.4g}")] for m in case.measurements if m.limit is not None
    }
    return {"status": case.status.value, "value_and_limit": numbers}


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    plan = Plan.model_validate_json((source / "plan.json").read_bytes())
    events = EventReader(source / "events.jsonl").new()
    lines = json.dumps(small(load_result(source / "result.json"), plan, events), indent=1, ensure_ascii=False)
    target.write_text(lines.replace("[\n     ", "[").replace(",\n     ", ", ").replace("\n    ]", "]") + "\n")
