"""An image as one file for sites without a network: saved with its checksum, loaded only when it is whole and the right one."""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import docker
import zstandard

from kit.digest import file_sha256
from kit.errors import EnvironmentFault, ImageFault, UsageFault, is_disk_full
from kit.host.engine_faults import engine_faults, patient
from kit.host.image_store import NAME, BuiltImage, check_image, differing
from kit.host.lockfile import replace_text
from kit.image import ImageDefinition, source_files

_CHUNK = 1 << 20
_LEVEL = 3
_CONFIG = "manifest.json"


def sums_file(archive: Path) -> Path:
    """Where the checksum of an archive stands, as ``sha256sum -c`` reads it."""
    return archive.with_name(f"{archive.name}.sha256")


def save_image(client: "docker.DockerClient", definition: ImageDefinition, archive: Path) -> BuiltImage:
    """Write the built image of this kit to one ``.tar.zst``, and its checksum beside it; whole or not at all.

    Raises:
        ImageFault: it is not built. UsageFault: the archive exists. EnvironmentFault: a full disk, or no engine.
    """
    built = check_image(client, definition)
    if archive.exists():
        raise UsageFault(f"{archive} exists", "name another file, or remove it")
    partial = archive.with_name(f".{archive.name}.partial")
    try:
        with patient(client), engine_faults(), _file_faults(archive):
            image = client.images.get(built.tag)
            with partial.open("wb") as file, zstandard.ZstdCompressor(_LEVEL, threads=-1).stream_writer(file) as writer:
                for block in image.save(chunk_size=_CHUNK, named=built.tag):
                    writer.write(block)
            replace_text(sums_file(archive), f"{file_sha256(partial)}  {archive.name}\n")
            partial.replace(archive)
    finally:
        partial.unlink(missing_ok=True)
    return built


def load_image(client: "docker.DockerClient", definition: ImageDefinition, archive: Path) -> BuiltImage:
    """Load an archive of `save_image` into the engine, and name it as a build would.

    Nothing is handed to the engine before the checksum was compared, and the archive's own labels say that it holds this
    kit's image.

    Raises:
        UsageFault: no such file, or no checksum beside it. ImageFault: it is damaged, or another image.
        EnvironmentFault: no engine, or a full disk.
    """
    _refuse_damaged(archive)
    with _opened(archive) as stream:
        config = _config(archive, stream)
    labels = json.loads(config)["config"].get("Labels") or {}
    if different := differing(definition, labels, source_files()):
        raise ImageFault(
            f"{archive} holds image {labels.get(NAME, 'of something else')}: {' and '.join(different)} differ from this kit's",
            "take the archive that this version of kit has saved",
        )
    with patient(client), engine_faults(), _opened(archive) as stream:
        client.images.load(iter(lambda: stream.read(_CHUNK), b""))
        built = check_image(client, definition)
        if built.id != (wanted := f"sha256:{hashlib.sha256(config).hexdigest()}"):
            raise ImageFault(
                f"the engine has image {built.id[:19]}, the archive {wanted[:19]}", "remove the other, and load again"
            )
        client.images.get(built.id).tag(*definition.tag.split(":"))
    return built


def _refuse_damaged(archive: Path) -> None:
    sums = sums_file(archive)
    for path in (archive, sums):
        if not path.is_file():
            raise UsageFault(f"{path} is not there", "copy both, the archive and its .sha256")
    with _file_faults(archive):
        wanted, _, name = sums.read_text(encoding="utf-8").strip().partition("  ")
        if name != archive.name:
            raise ImageFault(
                f"{sums} is of {name[:80] or 'nothing'}, not of {archive.name}", "copy the file that belongs to it"
            )
        if file_sha256(archive) != wanted:
            raise ImageFault(f"{archive} is damaged: its SHA-256 is not the one in {sums.name}", "copy it again")


def _config(archive: Path, stream: IO[bytes]) -> bytes:
    """The image's configuration as a ``docker save`` has it: its SHA-256 is the image's id."""
    small: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                if member.isfile() and member.size < _CHUNK and (file := tar.extractfile(member)):
                    small[member.name] = file.read()
        (entry,) = json.loads(small[_CONFIG])
        config = small[entry["Config"]]
        json.loads(config)["config"]
    except (tarfile.TarError, zstandard.ZstdError, KeyError, TypeError, ValueError):
        raise ImageFault(
            f"{archive} is no image that 'kit images save' has written", "name the right archive"
        ) from None
    return config


@contextmanager
def _opened(archive: Path) -> Iterator[IO[bytes]]:
    with _file_faults(archive), archive.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
        yield reader


@contextmanager
def _file_faults(archive: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise EnvironmentFault(f"the disk of {archive} is full", "free space, or name another folder") from None
        raise EnvironmentFault(f"{error.filename or archive}: {error.strerror}", "check its permissions") from None
