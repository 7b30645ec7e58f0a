"""The wheelhouse of an image: the files of its lock in kit's cache, each checked by hash whenever it is used."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kit.digest import file_sha256
from kit.errors import EnvironmentFault, ImageFault, is_disk_full
from kit.host.lockfile import Pin, read_lock, replace_text
from kit.host.pip import run_pip
from kit.host.resolve import target_options
from kit.image import ImageDefinition, lock_digest
from kit.paths import cache_folder

MARKER = "SHA256SUMS"


@dataclass(frozen=True)
class Wheelhouse:
    """A complete set of wheels.

    Attributes:
        folder: where they lie, with a file `MARKER` that lists them as ``sha256sum -c`` reads it.
        wheels: sorted by file name.
        fetched: how many had to be fetched now.
    """

    folder: Path
    wheels: tuple[Path, ...]
    fetched: int

    @property
    def size(self) -> int:
        """Bytes of all wheels."""
        return sum(path.stat().st_size for path in self.wheels)


def wheelhouse_folder(definition: ImageDefinition) -> Path:
    """Where the wheels of this lock belong; another lock has another folder."""
    return cache_folder() / "wheels" / lock_digest(definition)


def held_wheels(definition: ImageDefinition) -> tuple[Path, ...]:
    """The wheels of this lock where all are here with their hashes, else none; nothing is fetched or removed.

    Raises:
        ImageFault: no lock, or a stale one.
    """
    wanted = {pin.sha256 for pin in read_lock(definition)}
    wheels = tuple(path for path in sorted(wheelhouse_folder(definition).glob("*.whl")) if file_sha256(path) in wanted)
    return wheels if len(wheels) == len(wanted) else ()


def fetch_wheels(definition: ImageDefinition) -> Wheelhouse:
    """Make the wheelhouse complete. What is there and has its hash is kept; a partial file is fetched again.

    Raises:
        ImageFault: no lock, or a wheel that is not to be had or has another hash (its file is named).
        EnvironmentFault: no network, a full disk, or a cache that cannot be written to.
    """
    pins = read_lock(definition)
    folder = wheelhouse_folder(definition)
    with disk_faults(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _borrow(folder, pins)
        present = _verified(folder, pins)
        missing = [pin for pin in pins if pin.sha256 not in present]
        if missing:
            (folder / MARKER).unlink(missing_ok=True)
            present |= _download(definition, missing, folder)
        wheels = sorted(present.items(), key=lambda item: item[1].name)
        sums = "".join(f"{sha256}  {path.name}\n" for sha256, path in wheels)
        if not (folder / MARKER).is_file():
            replace_text(folder / MARKER, sums)
    return Wheelhouse(folder, tuple(path for _, path in wheels), len(missing))


def _borrow(folder: Path, pins: Iterable[Pin]) -> None:
    """Link what complete wheelhouses of other locks have, so that a new lock fetches only what is new in it."""
    wanted = {pin.sha256 for pin in pins}
    for marker in sorted(folder.parent.glob(f"*/{MARKER}")):
        for line in marker.read_text(encoding="utf-8").splitlines():
            sha256, _, name = line.partition("  ")
            if sha256 in wanted and not (folder / name).exists():
                with suppress(OSError):
                    (folder / name).hardlink_to(marker.parent / name)


def _verified(folder: Path, pins: Iterable[Pin]) -> dict[str, Path]:
    """The wheels that are in the lock, by hash; any other wheel is removed."""
    wanted = {pin.sha256 for pin in pins}
    present: dict[str, Path] = {}
    for path in sorted(folder.glob("*.whl")):
        sha256 = file_sha256(path)
        if sha256 in wanted:
            present[sha256] = path
        else:
            path.unlink(missing_ok=True)
    return present


def _download(definition: ImageDefinition, missing: Sequence[Pin], folder: Path) -> dict[str, Path]:
    """Fetch into a folder beside, check, and move in: a wheel in the wheelhouse is whole."""
    fetched: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as name:
        temporary = Path(name)
        lock = temporary / "missing.txt"
        lock.write_text("".join(f"{pin.requirement}\n" for pin in missing), encoding="utf-8")
        run_pip(
            *("download", "--quiet", "--require-hashes", "--no-deps"),
            *("--requirement", str(lock), "--dest", str(temporary)),
            *target_options(definition.python),
        )
        for path in temporary.glob("*.whl"):
            sha256 = file_sha256(path)
            fetched[sha256] = path.replace(folder / path.name)
    for pin in missing:
        if pin.sha256 not in fetched:
            raise ImageFault(f"pip fetched no wheel of {pin.name} {pin.version} with the hash of the lock", "try again")
    return fetched


@contextmanager
def disk_faults(folder: Path) -> Iterator[None]:
    """Turn what goes wrong with a folder of the cache into an `EnvironmentFault`."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise EnvironmentFault(
                f"the disk of {folder} is full", "free space, or set KIT_CACHE to another folder"
            ) from None
        raise EnvironmentFault(
            f"{error.filename or folder}: {error.strerror}", "check its permissions, or set KIT_CACHE to another folder"
        ) from None
