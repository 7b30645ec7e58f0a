"""Writing the reports of a run: each whole or not at all, and each also when another could not be written."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from kit.errors import EnvironmentFault, KitError, ReportFault, is_disk_full
from kit.results.junit import to_junit
from kit.results.model import RunResult

RESULT_FILE = "result.json"
JUNIT_FILE = "junit.xml"
REPORT_FILE = "report.html"


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


def write_all(result: RunResult, folder: Path, keep: bool = False) -> tuple[Path, ...]:
    """Write ``junit.xml``, ``result.json`` and ``report.html`` into `folder`, in the order of their weight; gives their paths.

    Args:
        keep: leave alone what is there; only what was written is given.

    Raises:
        EnvironmentFault: one or more could not be written; what could be written was, and the line names the rest.
        ReportFault: one could not be made; the others were.
    """
    reports: tuple[tuple[str, Callable[[], bytes]], ...] = (
        (JUNIT_FILE, lambda: to_junit(result)),
        (RESULT_FILE, result.to_json),
        (REPORT_FILE, lambda: _to_html(result)),
    )
    written: list[Path] = []
    lost: dict[str, Exception] = {}
    for name, render in reports:
        if keep and (folder / name).exists():
            continue
        try:
            write_atomically(folder / name, render())
            written.append(folder / name)
        except Exception as error:
            lost[name] = error
    if lost:
        raise _fault_of(lost, folder)
    return tuple(written)


def _to_html(result: RunResult) -> bytes:
    from kit.results.report.render import to_html

    return to_html(result)


def _fault_of(lost: dict[str, Exception], folder: Path) -> KitError:
    unwritten = {name: error for name, error in lost.items() if isinstance(error, OSError)}
    if not unwritten:
        error = next(iter(lost.values()))
        return ReportFault(
            f"{_listed(lost)} could not be made: {type(error).__name__}: {error}",
            "the other reports were written; report this as a fault of kit, with result.json",
        )
    first = next(iter(unwritten.values()))
    full = is_disk_full(first)
    why = "the disk is full" if full else first.strerror or str(first)
    return EnvironmentFault(
        f"{_listed(lost)} could not be written to {folder}: {why}",
        ("free some space" if full else "check the folder and its permissions")
        + "; 'kit report FOLDER' then makes what a run left out",
    )


def _listed(names: Iterable[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last
