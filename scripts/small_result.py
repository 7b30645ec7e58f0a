"""Makes the small JSON of docs/results from a result.json: values, limits and versions; no evidence, no paths.

scripts/small_result.py RESULT.JSON OUTPUT.JSON
"""

import json
import sys
from pathlib import Path

from kit.results.model import CaseResult, RunResult, load_result

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


def small(result: RunResult) -> dict[str, object]:
    """What docs/results keeps of a run."""
    facts = {name: value for session in result.sessions for name, value in session.facts.items()} | result.worker
    return {
        "profile": result.profile.name,
        "runtime": result.runtime,
        "exit_code": int(result.exit_code),
        "seconds": round(result.finished - result.started, 1),
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
    lines = json.dumps(small(load_result(source)), indent=1, ensure_ascii=False)
    target.write_text(lines.replace("[\n     ", "[").replace(",\n     ", ", ").replace("\n    ]", "]") + "\n")
