"""Ten thousand cases: reports and bundle within 10 s and 1 GiB on a usual machine; the tests allow a slow one three times as long."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_ten_thousand_cases(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.results.many", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert sum(told["seconds"].values()) < 30, told
    assert told["memory"] < 2**30, told
    assert told["sizes"]["junit.xml"] < 30_000_000, told
