"""The results folder of one run: new or empty, writable, and never overwritten."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from kit.errors import EnvironmentFault, KitError, UsageFault, is_disk_full
from kit.events import RunRefused, parse_lines
from kit.results.files import JUNIT_FILE, REPORT_FILE, RESULT_FILE
from kit.results.stored import ENVIRONMENT_FILE, HOST_FILE, PLAN_FILE, PROFILE_FILE, WAIVERS_FILE
from kit.results.sums import SUMS_FILE

RESERVE_BYTES = 16 * 1024 * 1024
_OF_A_REFUSED_RUN = {
    PLAN_FILE, PROFILE_FILE, WAIVERS_FILE, HOST_FILE, JUNIT_FILE, RESULT_FILE, REPORT_FILE, ENVIRONMENT_FILE, SUMS_FILE, "logs"
}  # fmt: skip


def default_folder(profile_name: str, run_id: str) -> Path:
    """``kit-results/<profile>-<run id>`` below the current folder: no two runs share it."""
    return Path("kit-results") / f"{profile_name.lower()}-{run_id}"


class Reserve:
    """Space on the disk of a results folder, held for the reports: `free` it before they are written.

    The file has no name, so it is gone with the process that holds it, however that ends.
    """

    def __init__(self, folder: Path, size: int = RESERVE_BYTES) -> None:
        self._fd: int | None = _nameless_file(folder)
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError:
            self.free()
            raise

    def free(self) -> None:
        """Give the space back; once is enough."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _nameless_file(folder: Path) -> int:
    with contextlib.suppress(OSError):  # file systems without O_TMPFILE
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    path = folder / ".kit-reserve"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    path.unlink()
    return descriptor


def claim(folder: Path) -> tuple[Path, Reserve]:
    """Create `folder`, and prove that it can be written; gives its absolute path, and the space for the reports.

    One that is empty is taken, and one that holds only the reports of a run that was refused. Of two runs that claim one
    folder at the same moment, one gets it.

    Raises:
        UsageFault: it is a file, not empty, or not writable. EnvironmentFault: the disk has no room for the reports.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would hide the name that the user gave
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise _no_folder(folder) from None
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        with _locked(folder):
            return folder, _taken(folder)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _taken(folder: Path) -> Reserve:
    if any(folder.iterdir()):
        if not _was_refused(folder):
            raise UsageFault(
                f"the output folder {folder} is not empty", "name another with --output; nothing was changed"
            )
        release(folder)
    logs = folder / "logs"
    logs.mkdir()
    try:
        return Reserve(folder)
    except OSError:
        with contextlib.suppress(OSError):
            logs.rmdir()
        raise


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One run at a time within; where the file system has no locks, none is held."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _was_refused(folder: Path) -> bool:
    """Whether a run was refused here before anything was started, and nothing else lies here."""
    if {path.name for path in folder.iterdir()} - _OF_A_REFUSED_RUN or any((folder / "logs").glob("*")):
        return False
    try:
        events, damaged = parse_lines((folder / HOST_FILE).read_bytes().splitlines())
    except OSError:
        return False
    return not damaged and any(isinstance(event, RunRefused) for event in events)


def release(folder: Path) -> None:
    """Empty the folder after a run that was never started, so that the next one may have it. Removes only what a run puts there."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder / "logs", ignore_errors=True)
        for name in _OF_A_REFUSED_RUN - {"logs"}:
            (folder / name).unlink(missing_ok=True)


def _no_folder(folder: Path) -> UsageFault:
    """What is there is no folder, or what should hold it is none."""
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    what = "a link that leads to no folder" if there.is_symlink() else "a file"
    problem = f"is {what}" if there == folder else f"cannot be made: {there} is {what}"
    return UsageFault(f"the output folder {folder} {problem}", "name another with --output")


def _unwritable(folder: Path, error: OSError) -> KitError:
    if is_disk_full(error):
        return EnvironmentFault(
            f"the disk of {folder} has not the {RESERVE_BYTES >> 20} MiB that the reports may need",
            "free some space, or name another with --output",
        )
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
