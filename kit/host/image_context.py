"""The build context of an image: one tar with the same bytes for the same inputs, so that the engine's layer cache works."""

import contextlib
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO

from kit.errors import EnvironmentFault
from kit.image import ImageDefinition, source_files
from kit.paths import package_folder

EXPECT_SCRIPT = "image_expect.py"


@contextlib.contextmanager
def build_context(definition: ImageDefinition, wheels: Sequence[Path]) -> Iterator[IO[bytes]]:
    """An open temporary file with the tar, at its start; gone afterwards.

    Members: ``Dockerfile``, ``requirements.lock``, ``expect.py``, ``wheels/`` and ``kit/``.

    Raises:
        EnvironmentFault: the temporary folder is full.
    """
    with tempfile.TemporaryFile(prefix="kit-context-") as file:
        try:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for name, path in _members(definition, wheels):
                    _add(tar, name, path)
        except OSError as error:
            raise EnvironmentFault(
                f"the build context cannot be written to {tempfile.gettempdir()}: {error.strerror}",
                "free space, or set TMPDIR to another folder",
            ) from None
        file.seek(0)
        yield file


def _members(definition: ImageDefinition, wheels: Sequence[Path]) -> Iterator[tuple[str, Path | None]]:
    yield "Dockerfile", definition.dockerfile_path
    yield "requirements.lock", definition.lock_path
    yield "expect.py", package_folder() / "host" / EXPECT_SCRIPT
    yield "wheels", None
    for path in sorted(wheels, key=lambda path: path.name):
        yield f"wheels/{path.name}", path
    folders = {"kit"}
    yield "kit", None
    for name, path in source_files():
        for parent in reversed(Path("kit", name).parents):
            if parent.parts and (folder := parent.as_posix()) not in folders:
                folders.add(folder)
                yield folder, None
        yield f"kit/{name}", path


def _add(tar: tarfile.TarFile, name: str, path: Path | None) -> None:
    """Add a file, or a folder where there is no path, owned by root, of no date, readable by everyone."""
    info = tarfile.TarInfo(name)
    if path is None:
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(info, BytesIO())
        return
    info.mode = 0o644
    with path.open("rb") as content:
        info.size = path.stat().st_size
        tar.addfile(info, content)
