"""Writing the reports of a run: each whole or not at all, and each also when another could not be written."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from kit.errors import EnvironmentFault
from kit.results.junit import to_junit
from kit.results.model import RunResult

RESULT_FILE = "result.json"
JUNIT_FILE = "junit.xml"


def write_atomically(path: Path, data: bytes) -> None:
    """Write `path` through a temporary file in its folder: a crash or a full disk leaves the old or the new file whole.

    Raises:
        OSError: it cannot be written; no temporary file is left.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_all(result: RunResult, folder: Path) -> tuple[Path, ...]:
    """Write ``result.json`` and ``junit.xml`` into `folder`; gives their paths.

    Raises:
        EnvironmentFault: one or both could not be written; what could be written was, and the line names the rest.
    """
    reports: tuple[tuple[str, Callable[[], bytes]], ...] = (
        (RESULT_FILE, result.to_json),
        (JUNIT_FILE, lambda: to_junit(result)),
    )
    written: list[Path] = []
    faults: list[OSError] = []
    lost: list[str] = []
    for name, render in reports:
        try:
            write_atomically(folder / name, render())
            written.append(folder / name)
        except OSError as error:
            faults.append(error)
            lost.append(name)
    if faults:
        full = faults[0].errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full" if full else faults[0].strerror or str(faults[0])
        raise EnvironmentFault(
            f"{' and '.join(lost)} could not be written to {folder}: {why}",
            "free some space and run again" if full else "check the folder and its permissions, and run again",
        )
    return tuple(written)
