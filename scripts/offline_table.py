"""Writes docs/results/offline.json: what kernels take on hardware that was not there, and how right their MLIR is.

    offline_table.py RESULT_JSON...

Each is the result of a run with --offline-checks. One line per case keeps differences readable.
"""

import json
import sys
from pathlib import Path

from kit.results.model import CaseResult, load_result

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "results" / "offline.json"
VERSIONS = ("sglang", "triton", "wave-lang", "iree-base-compiler", "torch", "numpy")
COMPILED = (
    "not_compiled",
    "local_bytes",
    "vector_registers",
    "scalar_registers",
    "vector_spills",
    "scalar_spills",
    "scratch_bytes",
)
EXECUTED = ("head_max_abs_error", "rms_error", "out_of_bounds_reads", "out_of_bounds_writes")


def row(case: CaseResult) -> dict[str, float]:
    """The numbers of a case; errors to three digits."""
    told = {m.name: float(f"{m.value:.3g}") if m.value < 1 else m.value for m in case.measurements}
    names = COMPILED if "-compile/" in case.id else EXECUTED
    return {name: told[name] for name in names if name in told}


def main() -> None:
    """Read the results named on the command line, and write the table."""
    results = [load_result(Path(name)) for name in sys.argv[1:]]
    facts = [session.facts for result in results for session in result.sessions if session.id == "offline"]
    (versions,) = {tuple((name, fact[name]) for name in VERSIONS) for fact in facts}
    rows = {
        case.id: row(case)
        for result in results
        for case in result.cases
        if case.session == "offline" and case.measurements
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in sorted(rows.items()))
    OUTPUT.write_text(f'{{\n "versions": {json.dumps(dict(versions))},\n "cases": {{\n{lines}\n }}\n}}\n')
    print(f"{OUTPUT.name}: {len(rows)} cases")


if __name__ == "__main__":
    main()
