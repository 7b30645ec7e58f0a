"""The build context of an image: one tar, the same bytes for the same inputs, so that layers are reused."""

import contextlib
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO

from kit.errors import EnvironmentFault
from kit.image import ImageDefinition, kit_dockerfile, settle_script


@contextlib.contextmanager
def stack_context(definition: ImageDefinition, wheels: Sequence[Path]) -> Iterator[IO[bytes]]:
    """An open temporary file with the tar of a stack, at its start; gone afterwards.

    Members: ``Dockerfile``, ``requirements.lock``, ``settle.py`` and ``wheels/``.

    Raises:
        EnvironmentFault: the temporary folder is full.
    """
    with _tar_file() as (file, tar):
        _add_file(tar, "Dockerfile", definition.dockerfile_path)
        _add_file(tar, "requirements.lock", definition.lock_path)
        _add_file(tar, "settle.py", settle_script())
        _add_folder(tar, "wheels")
        for path in sorted(wheels, key=lambda path: path.name):
            _add_file(tar, f"wheels/{path.name}", path)
        tar.close()
        file.seek(0)
        yield file


@contextlib.contextmanager
def kit_context(sources: dict[str, bytes]) -> Iterator[IO[bytes]]:
    """The same for kit on top of a stack: ``Dockerfile`` and ``kit/`` with `sources`.

    Raises:
        EnvironmentFault: the temporary folder is full.
    """
    with _tar_file() as (file, tar):
        _add_file(tar, "Dockerfile", kit_dockerfile())
        _add_sources(tar, sources)
        tar.close()
        file.seek(0)
        yield file


@contextlib.contextmanager
def _tar_file() -> Iterator[tuple[IO[bytes], tarfile.TarFile]]:
    try:
        with (
            tempfile.TemporaryFile(prefix="kit-context-") as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            yield file, tar
    except OSError as error:
        raise EnvironmentFault(
            f"the build context cannot be written to {tempfile.gettempdir()}: {error.strerror}",
            "free space, or set TMPDIR to another folder",
        ) from None


def _add_sources(tar: tarfile.TarFile, sources: dict[str, bytes]) -> None:
    folders: set[str] = set()
    for name, content in sorted(sources.items()):
        path = PurePosixPath("kit", name)
        for parent in reversed(path.parents):
            if parent.parts and (folder := str(parent)) not in folders:
                folders.add(folder)
                _add_folder(tar, folder)
        _add(tar, str(path), BytesIO(content), len(content))


def _add_file(tar: tarfile.TarFile, name: str, path: Path) -> None:
    with path.open("rb") as content:
        _add(tar, name, content, path.stat().st_size)


def _add_folder(tar: tarfile.TarFile, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(info)


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    """Add a file, owned by root, of no date, readable by everyone."""
    info = tarfile.TarInfo(name)
    info.mode, info.size = 0o644, size
    tar.addfile(info, content)
