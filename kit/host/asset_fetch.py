"""Fetches a pinned asset into kit's cache: whole or not at all, and never a byte that the row does not know."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kit.asset import Asset, PinnedFile
from kit.errors import EnvironmentFault, ImageFault
from kit.host.asset_cache import Advance, AssetFolder, Display, State, fault_of, in_threads, wrong_files
from kit.host.hub import Hub
from kit.host.wheelhouse import disk_faults


def fetch_asset(asset: Asset, make_hub: Callable[[], Hub], display: Display) -> Path:
    """Make an asset complete in the cache; gives the folder of its files. Where it is complete, no request is made.

    Args:
        make_hub: called only when something must be fetched.

    Raises:
        ImageFault: not locked, not to be had, or a file is not the one of the row.
        EnvironmentFault: no network, no space, or a cache that cannot be written to.
    """
    place = AssetFolder(asset)
    with disk_faults(place.home), _alone(place, display):
        wrong = wrong_files(place, display)
        if not wrong and place.state() is State.READY:
            display.line(f"{asset.name}: complete, nothing to fetch")
            return place.files
        place.marker.unlink(missing_ok=True)
        for path in place.strays():
            display.line(f"{asset.name}: {path.relative_to(place.files)} is not part of it, removed")
            path.unlink()
        for file, fault in wrong.items():
            if (path := place.files / file.path).is_file():
                display.line(f"{asset.name}: {fault}; fetched anew")
                path.unlink()
        if wrong:
            _download(place, tuple(wrong), make_hub(), display)
        shutil.rmtree(place.parts, ignore_errors=True)
        place.write_marker()
    display.line(f"{asset.name}: complete, {len(wrong)} of {len(asset.files)} files fetched, every SHA-256 is right")
    return place.files


def _download(place: AssetFolder, missing: Iterable[PinnedFile], hub: Hub, display: Display) -> None:
    place.parts.mkdir(parents=True, exist_ok=True)
    place.files.mkdir(parents=True, exist_ok=True)
    needed = sum(file.size - min(_length(place.part(file)), file.size) for file in missing)
    free = shutil.disk_usage(place.home).free
    if needed > free:
        raise EnvironmentFault(
            f"asset {place.asset.name} needs {needed:,} bytes more, and the disk of {place.home} has {free:,} free",
            "free space, or set KIT_CACHE to another folder",
        )

    def get(file: PinnedFile, goes_on: Advance) -> None:
        display.begin(file, _length(place.part(file)))
        part = _whole_part(place, file, hub, display, goes_on)
        final = place.files / file.path
        final.parent.mkdir(parents=True, exist_ok=True)
        part.replace(final)
        display.end(file)

    display.stage("fetching", sum(file.size for file in missing))
    in_threads(get, missing)


def _whole_part(place: AssetFolder, file: PinnedFile, hub: Hub, display: Display, goes_on: Advance) -> Path:
    """A file in its full length, checked and safe on disk, but not in its place yet.

    What was begun earlier and proves wrong is fetched anew, once.
    """
    asset, part = place.asset, place.part(file)

    def advance(count: int) -> None:
        goes_on(count)
        display.advance(file, count)

    while True:
        begun = _length(part)
        whole = begun == file.size > 0 or hub.download(asset, asset.revision, file.path, file.size, part, advance)
        fault = fault_of(file, part, goes_on) if whole else f"{file.path} has another size than its row says"
        if fault is None:
            with part.open("rb") as stream:
                os.fsync(stream.fileno())
            return part
        display.advance(file, -_length(part))
        part.unlink()
        if not begun:
            raise ImageFault(
                f"asset {asset.name}: on the hub {fault}",
                f"find out who changed it; a row is only renewed with 'kit assets lock {asset.name}'",
            )


def _length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


@contextmanager
def _alone(place: AssetFolder, display: Display) -> Iterator[None]:
    """One fetch of an asset at a time."""
    place.home.mkdir(parents=True, exist_ok=True)
    with (place.home.parent / ".lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            display.line(f"{place.asset.name}: waiting for another kit that fetches it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
