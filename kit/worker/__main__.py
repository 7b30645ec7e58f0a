"""``python -m kit.worker FOLDER --assets FOLDER``: runs the plan in a results folder."""

import argparse
from pathlib import Path

from kit.worker.entry import run_plan


def main() -> None:
    """Parse the command line, run the plan."""
    parser = argparse.ArgumentParser(prog="kit.worker", description="Runs the plan.json of a results folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--assets", type=Path, required=True)
    options = parser.parse_args()
    run_plan(options.folder, options.assets)


if __name__ == "__main__":
    main()
