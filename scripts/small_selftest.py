"""Makes the small JSON of docs/results from the folders of self-tests: verdicts, margins, what upstream's rules say, sweeps and rounds.

scripts/small_selftest.py OUTPUT.JSON FOLDER...
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from small_result import VERSIONS

from kit.results.model import load_result
from kit.selftest.comparison import comparison
from kit.selftest.outcome import FaultOutcome, SelftestResult


def small(folder: Path) -> dict[str, object]:
    """What docs/results keeps of one self-test."""
    found = SelftestResult.model_validate_json((folder / "selftest.json").read_bytes())
    result = load_result(folder / "result.json")
    facts = {name: value for session in result.sessions for name, value in session.facts.items()} | result.worker
    return {
        "profile": found.profile,
        "seconds": round(found.seconds, 1),
        "versions": {name: facts[name] for name in VERSIONS if name in facts},
        "faults": len(found.faults),
        "caught": sum(bool(outcome.caught) for outcome in found.faults),
        "rounds": found.rounds,
        "fault_free_cases": found.quiet + len(found.alarms),
        "alarms": list(found.alarms),
        "unanswered": found.unanswered,
        "alarms_of_upstreams_rules": found.upstream_alarms,
        "left_out": found.left_out,
        "comparison": [asdict(row) for row in comparison(found)] if found.faults else [],
        "sweeps": [sweep.model_dump(mode="json") for sweep in found.sweeps],
        "by_fault": {outcome.fault: _told(outcome) for outcome in found.faults},
    }


def _told(outcome: FaultOutcome) -> dict[str, object]:
    first = outcome.caught[0] if outcome.caught else None
    return {
        "verdict": outcome.verdict,
        "by": first and first.case,
        "measurement": first and first.measurement,
        "margin": first and first.margin and float(f"{first.margin:.3g}"),
        "seconds": first and first.seconds and round(first.seconds, 1),
        "upstream": {rule: said for rule, said in outcome.upstream.items() if said != "cannot judge"},
    }


if __name__ == "__main__":
    target, *folders = map(Path, sys.argv[1:])
    target.write_text(json.dumps([small(folder) for folder in folders], indent=1, ensure_ascii=False) + "\n")
