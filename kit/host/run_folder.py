"""The results folder of one run: new or empty, writable, and never overwritten."""

import contextlib
import os
import shutil
from pathlib import Path

from kit.errors import EnvironmentFault, KitError, UsageFault, is_disk_full
from kit.results.stored import HOST_FILE, PLAN_FILE, PROFILE_FILE, WAIVERS_FILE


def default_folder(profile_name: str, run_id: str) -> Path:
    """``kit-results/<profile>-<run id>`` below the current folder: no two runs share it."""
    return Path("kit-results") / f"{profile_name.lower()}-{run_id}"


def claim(folder: Path) -> Path:
    """Create `folder` (or take it where it is empty) and prove that it can be written; gives its absolute path.

    Of two runs that claim one folder at the same moment, one gets it.

    Raises:
        UsageFault: it is a file, not empty, or not writable. EnvironmentFault: the disk is full.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would hide the name that the user gave
    logs, probe = folder / "logs", folder / ".kit-write-test"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageFault(f"the output folder {folder} is a file", "name another with --output") from None
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        logs.mkdir()
    except FileExistsError:
        raise _not_empty(folder) from None
    except OSError as error:
        raise _unwritable(folder, error) from None
    if any(path != logs for path in folder.iterdir()):
        logs.rmdir()
        raise _not_empty(folder)
    try:
        probe.write_bytes(b"\0" * 65_536)
        probe.unlink()
    except OSError as error:
        probe.unlink(missing_ok=True)
        logs.rmdir()
        raise _unwritable(folder, error) from None
    return folder


def release(folder: Path) -> None:
    """Empty the folder after a run that was never started, so that the next one may have it. Removes only what a run puts there."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder / "logs")
        for name in (PLAN_FILE, PROFILE_FILE, WAIVERS_FILE, HOST_FILE):
            (folder / name).unlink(missing_ok=True)


def _not_empty(folder: Path) -> UsageFault:
    return UsageFault(f"the output folder {folder} is not empty", "name another with --output; nothing was changed")


def _unwritable(folder: Path, error: OSError) -> KitError:
    if is_disk_full(error):
        return EnvironmentFault(f"the disk of {folder} is full", "free some space, or name another with --output")
    return UsageFault(f"the output folder {folder} cannot be written: {error.strerror}", "name another with --output")


def write(path: Path, text: str) -> None:
    """Write a small file of the run.

    Raises:
        EnvironmentFault: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be written: {error.strerror}", "see to space and permissions there"
        ) from None
