"""``python -m kit.worker FOLDER --assets FOLDER [--pinned FOLDER]``: runs the plan in a results folder."""

import argparse
import errno
import traceback
from pathlib import Path

from kit.errors import ExitCode, is_disk_full
from kit.worker.entry import run_plan


def main() -> None:
    """Parse the command line, run the plan. Exit code 3 says that the results folder could not be written to."""
    parser = argparse.ArgumentParser(prog="kit.worker", description="Runs the plan.json of a results folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--assets", type=Path, required=True)
    parser.add_argument("--pinned", type=Path)
    options = parser.parse_args()
    try:
        run_plan(options.folder, options.assets, options.pinned)
    except OSError as error:
        traceback.print_exc()
        if not is_disk_full(error) and error.errno not in (errno.EACCES, errno.EROFS):
            raise SystemExit(1) from None
        raise SystemExit(ExitCode.ENVIRONMENT) from None


if __name__ == "__main__":
    main()
