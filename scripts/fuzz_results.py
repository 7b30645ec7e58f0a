#!/usr/bin/env python3
"""Fuzzes results and reports: any result model and any bytes, through JUnit, junitparser, lxml, result.json and the bundle.

Run it in a checkout: ``.venv/bin/python scripts/fuzz_results.py [EXAMPLES]``, by default 20,000.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.unit.results.fuzz import fuzz


def main() -> None:
    """Run all; end with a traceback at the first file that is not valid."""
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    begin = time.monotonic()
    results, streams = fuzz(examples)
    print(f"{results} results and {streams} streams, no invalid file, {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
