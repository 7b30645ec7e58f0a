"""The results folder of one run: new or empty, writable, and never overwritten."""

import errno
import os
import time
from pathlib import Path

from kit.errors import EnvironmentFault, UsageFault


def default_folder(profile_name: str) -> Path:
    """``kit-results/<profile>-<UTC time>`` below the current folder."""
    return Path("kit-results") / f"{profile_name.lower()}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"


def claim(folder: Path) -> Path:
    """Create `folder` (or take it where it is empty) and prove that it can be written; gives its absolute path.

    Raises:
        UsageFault: it is a file, not empty, or not writable. EnvironmentFault: the disk is full.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would hide the name that the user gave
    probe = folder / ".kit-write-test"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageFault(
                f"the output folder {folder} is not empty", "name another with --output; nothing was changed"
            )
        probe.write_bytes(b"\0" * 65_536)
        probe.unlink()
        (folder / "logs").mkdir()
    except (FileExistsError, NotADirectoryError):
        raise UsageFault(f"the output folder {folder} is a file", "name another with --output") from None
    except OSError as error:
        probe.unlink(missing_ok=True) if error.errno == errno.ENOSPC else None
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EnvironmentFault(
                f"the disk of {folder} is full", "free some space, or name another with --output"
            ) from None
        raise UsageFault(
            f"the output folder {folder} cannot be written: {error.strerror}", "name another with --output"
        ) from None
    return folder


def write(path: Path, text: str) -> None:
    """Write a small file of the run.

    Raises:
        EnvironmentFault: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror}", "free some space") from None
