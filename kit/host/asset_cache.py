"""Pinned assets in kit's cache, held against the hashes of their rows; nothing here asks a network.

<cache>/assets/<name>/<revision>/files/       what the subject is given; nothing else lies in it
                                 parts/       downloads that are not complete (`kit.host.asset_fetch`)
                                 SHA256SUMS   written last; for sha256sum -c in files/
"""

import hashlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote

from kit.asset import Asset, PinnedFile, find_asset
from kit.errors import ImageFault
from kit.host.wheelhouse import disk_faults
from kit.paths import cache_folder
from kit.results.files import write_atomically
from kit.results.model import Mode

MARKER = "SHA256SUMS"
_WORKERS = 4
_BLOCK = 1 << 20
_LONGEST_NAME = 200

Advance = Callable[[int], None]
Result = TypeVar("Result")


class State(StrEnum):
    """How far an asset is."""

    UNLOCKED = "unlocked"
    MISSING = "not fetched"
    UNVERIFIED = "unverified"
    READY = "ready"


class Display(Protocol):
    """Where fetching and verifying tell how they go; called from several threads."""

    def line(self, text: str) -> None:
        """One line of information."""

    def stage(self, what: str, size: int) -> None:
        """From now on `size` bytes are checked or fetched."""

    def begin(self, file: PinnedFile, done: int) -> None:
        """A file is begun, with `done` bytes behind it."""

    def advance(self, file: PinnedFile, count: int) -> None:
        """So many more bytes are done; negative where a file starts anew."""

    def end(self, file: PinnedFile) -> None:
        """The file is done."""


class Silent:
    """A display that tells nothing."""

    def line(self, text: str) -> None:
        """Nothing."""

    def stage(self, what: str, size: int) -> None:
        """Nothing."""

    def begin(self, file: PinnedFile, done: int) -> None:
        """Nothing."""

    def advance(self, file: PinnedFile, count: int) -> None:
        """Nothing."""

    def end(self, file: PinnedFile) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Available:
    """Assets for a run: folders by name; and by name why an asset cannot be used, in one line."""

    folders: dict[str, Path] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def assets_home() -> Path:
    """The folder below which all pinned assets lie."""
    return cache_folder() / "assets"


class AssetFolder:
    """Where one locked asset lies.

    Raises:
        ImageFault: the asset is not locked.
    """

    def __init__(self, asset: Asset) -> None:
        asset.refuse_unlocked()
        self.asset = asset
        self.home = assets_home() / asset.name / asset.revision
        self.files = self.home / "files"
        self.parts = self.home / "parts"
        self.marker = self.home / MARKER

    @property
    def sums(self) -> str:
        """What `MARKER` says of the complete asset."""
        return "".join(f"{file.sha256}  {file.path}\n" for file in sorted(self.asset.files, key=lambda f: f.path))

    def strays(self) -> list[Path]:
        """Files that the row does not name."""
        known = {self.files / file.path for file in self.asset.files}
        return sorted(path for path in self.files.rglob("*") if path not in known and not path.is_dir())

    def part(self, file: PinnedFile) -> Path:
        """Where a file is put together; another content has another name."""
        return self.parts / f"{quote(file.path, safe='')[:_LONGEST_NAME]}.{file.sha256[:16]}"

    def write_marker(self) -> None:
        """Record that every file is right.

        Raises:
            OSError: it cannot be written.
        """
        write_atomically(self.marker, self.sums.encode())

    def state(self) -> State:
        """What can be told without reading the files; `READY`: complete, and not changed since it was verified."""
        try:
            verified = self.marker.stat().st_mtime_ns
            if self.marker.read_text(encoding="utf-8") != self.sums or self.strays():
                return State.UNVERIFIED
            for file in self.asset.files:
                now = (self.files / file.path).stat()
                if now.st_size != file.size or now.st_mtime_ns > verified:
                    return State.UNVERIFIED
        except OSError:
            return State.UNVERIFIED if self.files.is_dir() else State.MISSING
        return State.READY


def state_of(asset: Asset) -> State:
    """How far an asset is, without reading its files."""
    return AssetFolder(asset).state() if asset.locked else State.UNLOCKED


def verify_asset(asset: Asset, display: Display) -> Path:
    """Hold every file in the cache against its SHA-256, offline; gives the folder of the files.

    Raises:
        ImageFault: not locked, not in the cache, or a file is missing, changed, or not named by the row.
        EnvironmentFault: the cache cannot be read, or the proof cannot be written beside the files.
    """
    place = AssetFolder(asset)
    again = f"run 'kit assets fetch {asset.name}'"
    with disk_faults(place.home):
        if not place.files.is_dir():
            raise ImageFault(f"asset {asset.name} is not in the cache", again)
        wrong = list(wrong_files(place, display).values())
        wrong += [f"{path.relative_to(place.files)} is not part of it" for path in place.strays()]
        if wrong:
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            raise ImageFault(f"asset {asset.name} in the cache: {wrong[0]}{more}", again)
        if place.state() is not State.READY:
            place.write_marker()
    return place.files


def asset_folder(name: str, path: Path | None = None) -> Path:
    """The folder of an asset that was fetched and verified; fetches nothing and reads no file of it.

    Args:
        name: of a row.
        path: of another file than ``profiles/assets.toml``.

    Raises:
        UsageFault: no such row. ImageFault: not locked, not fetched, or changed since it was verified.
    """
    asset = find_asset(name, path)
    place = AssetFolder(asset)
    match place.state():
        case State.READY:
            return place.files
        case State.UNVERIFIED:
            raise ImageFault(
                f"asset {asset.name} in the cache is not verified", f"run 'kit assets verify {asset.name}'"
            )
        case _:
            raise ImageFault(f"asset {asset.name} is not in the cache", f"run 'kit assets fetch {asset.name}'")


def require_assets(names: Iterable[str], mode: Mode, path: Path | None = None) -> Available:
    """The assets that a plan names; fetches nothing.

    In mode `qualify` every file is read, and every asset must be right. In mode `ci` an asset that cannot be used is
    told of, so that its cases can be skipped with that reason.

    Raises:
        UsageFault: no such row.
        ImageFault: in mode `qualify`, an asset that is not locked, not fetched, or not right.
    """
    available = Available()
    for name in sorted(set(names)):
        asset = find_asset(name, path)
        if mode is Mode.QUALIFY:
            available.folders[asset.name] = verify_asset(asset, Silent())
            continue
        try:
            available.folders[asset.name] = asset_folder(name, path)
        except ImageFault as fault:
            available.absent[asset.name] = str(fault)
    return available


def wrong_files(place: AssetFolder, display: Display) -> dict[PinnedFile, str]:
    """The files in the cache that are not right, and what is wrong with each, as a clause."""

    def check(file: PinnedFile, goes_on: Advance) -> str | None:
        path = place.files / file.path
        if not path.is_file():
            return f"{file.path} is missing"

        def advance(count: int) -> None:
            goes_on(count)
            display.advance(file, count)

        display.begin(file, 0)
        fault = fault_of(file, path, advance)
        display.end(file)
        return fault

    display.stage("checking", place.asset.size)
    faults = zip(place.asset.files, in_threads(check, place.asset.files), strict=True)
    return {file: fault for file, fault in faults if fault is not None}


def fault_of(file: PinnedFile, path: Path, advance: Advance) -> str | None:
    """What is wrong with a file, as a clause; None where it has its size and SHA-256.

    Raises:
        OSError: it cannot be read.
    """
    if (size := path.stat().st_size) != file.size:
        return f"{file.path} has {size:,} bytes, and its row says {file.size:,}"
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            advance(len(block))
    found = digest.hexdigest()
    return None if found == file.sha256 else f"{file.path} has SHA-256 {found}, and its row says {file.sha256}"


class _Stopped(Exception):
    """Another file failed, or the user wants no more."""


def in_threads(work: Callable[[PinnedFile, Advance], Result], files: Iterable[PinnedFile]) -> list[Result]:
    """Do `work` on every file. The first failure is raised, and ends the others when they next call the function they are given."""
    stop = threading.Event()

    def goes_on(_count: int) -> None:
        if stop.is_set():
            raise _Stopped

    with ThreadPoolExecutor(_WORKERS) as pool:
        tasks = [pool.submit(work, file, goes_on) for file in files]
        try:
            done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
            failures = [error for task in tasks if task in done and (error := task.exception()) is not None]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    if failures:
        raise failures[0]
    return [task.result() for task in tasks]
