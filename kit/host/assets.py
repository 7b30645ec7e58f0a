"""Synthetic assets on the host: made once per content, kept in the cache, checked by SHA-256 before each use."""

import contextlib
import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kit.errors import EnvironmentFault
from kit.paths import cache_folder, package_folder
from kit.plan import AssetFile


def prepare(models: tuple[str, ...]) -> tuple[Path, tuple[AssetFile, ...]]:
    """The folder that holds the named synthetic models, and the SHA-256 of each file in it.

    Two runs may share the folder: it is complete before it has its name, and never changed.

    Raises:
        EnvironmentFault: the cache cannot be written.
    """
    from kit.synthetic.files import materialise

    home = cache_folder() / "synthetic"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home / ".lock"):
            folder = home / _key(models)
            manifest = folder / "SHA256SUMS"
            if manifest.is_file():
                files = _read(manifest)
                if all(_matches(folder, file) for file in files):
                    return folder, files
                shutil.rmtree(folder)
            building = Path(tempfile.mkdtemp(prefix=".building-", dir=home))
            try:
                files = materialise(models, building)
                (building / "SHA256SUMS").write_text("".join(f"{f.sha256}  {f.path}\n" for f in files))
                building.chmod(0o755)
                building.rename(folder)
            finally:
                shutil.rmtree(building, ignore_errors=True)
            return folder, files
    except OSError as error:
        raise EnvironmentFault(
            f"the cache {home} cannot be used: {error.strerror}", "set KIT_CACHE to a folder that can be written"
        ) from None


def _key(models: tuple[str, ...]) -> str:
    """Changes with the models asked for and with every change of the generator itself."""
    digest = hashlib.sha256("\n".join(models).encode())
    for source in sorted((package_folder() / "synthetic").glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _read(manifest: Path) -> tuple[AssetFile, ...]:
    pairs = (line.split("  ", 1) for line in manifest.read_text().splitlines())
    return tuple(AssetFile(path=path, sha256=digest) for digest, path in pairs)


def _matches(folder: Path, file: AssetFile) -> bool:
    path = folder / file.path
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
