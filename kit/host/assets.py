"""Synthetic assets on the host: made once per content, kept in the cache, checked by SHA-256 before each use."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kit.digest import file_sha256
from kit.errors import EnvironmentFault
from kit.paths import cache_folder, package_folder
from kit.plan import AssetFile

_MANIFEST = "SHA256SUMS"


def prepare(models: tuple[str, ...]) -> tuple[Path, tuple[AssetFile, ...]]:
    """The folder that holds the named synthetic models, and the SHA-256 of each file in it.

    Two runs may share the folder: it is complete before it has its name, and never changed.

    Raises:
        EnvironmentFault: the cache cannot be written.
    """
    from kit.synthetic.catalogue import file_names
    from kit.synthetic.files import materialise

    expected = file_names(models)
    home = cache_folder() / "synthetic"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home / ".lock"):
            folder = home / _key(models)
            # A plan without models has no files, and its folder is shared too.
            if (files := _read(folder, expected)) is not None:
                return folder, files
            if folder.exists():
                shutil.rmtree(folder)
            for left in home.glob(".building-*"):  # by an interrupted build: the lock is ours
                shutil.rmtree(left, ignore_errors=True)
            building = Path(tempfile.mkdtemp(prefix=".building-", dir=home))
            try:
                files = materialise(models, building)
                (building / _MANIFEST).write_text("".join(f"{f.sha256}  {f.path}\n" for f in files))
                building.chmod(0o755)
                _sync(building)
                building.rename(folder)
                _sync_one(home)
            finally:
                shutil.rmtree(building, ignore_errors=True)
            return folder, files
    except OSError as error:
        raise EnvironmentFault(
            f"the cache {home} cannot be used: {error.strerror}", "set KIT_CACHE to a folder that can be written"
        ) from None


def present(models: tuple[str, ...]) -> bool:
    """Whether the cache holds these models, complete and undamaged; nothing is made."""
    from kit.synthetic.catalogue import file_names

    return _read(cache_folder() / "synthetic" / _key(models), file_names(models)) is not None


def _key(models: tuple[str, ...]) -> str:
    """Changes with the models asked for and with every change of the generator itself."""
    digest = hashlib.sha256("\n".join(models).encode())
    for source in sorted((package_folder() / "synthetic").glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _read(folder: Path, expected: frozenset[str]) -> tuple[AssetFile, ...] | None:
    """The files of a sound folder. None where it lacks one, holds another, or its manifest or a file is damaged."""
    if not (folder / _MANIFEST).is_file():
        return None
    try:
        lines = (folder / _MANIFEST).read_text(encoding="utf-8").splitlines()
        files = tuple(AssetFile(path=path, sha256=digest) for digest, path in (line.split("  ", 1) for line in lines))
    except ValueError:  # no UTF-8, no pair, no digest
        return None
    lying = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    complete = len(files) == len(expected) and {file.path for file in files} == expected
    sound = complete and lying == expected | {_MANIFEST} and all(_matches(folder, file) for file in files)
    return files if sound else None


def _matches(folder: Path, file: AssetFile) -> bool:
    path = folder / file.path
    return path.is_file() and file_sha256(path) == file.sha256


def _sync(folder: Path) -> None:
    """On the disk before the folder gets its name, so that a power loss leaves nothing half-written under it."""
    for path in (*folder.rglob("*"), folder):
        _sync_one(path)


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
