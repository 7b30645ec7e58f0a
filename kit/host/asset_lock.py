"""Locks an asset: asks the hub for commit, files and hashes, and writes them into the row, which is all that changes in the file."""

import hashlib
import json
import re
import tempfile
import tomllib
from itertools import pairwise
from pathlib import Path

from pydantic import ValidationError

from kit.asset import Asset, Assets, PinnedFile, inside, load_assets
from kit.errors import ImageFault
from kit.host.hub import Hub, RemoteFile
from kit.host.lockfile import replace_text
from kit.host.wheelhouse import disk_faults

_ROW = re.compile(r"^\[\[asset\]\]", re.MULTILINE)
_NAME = re.compile(r'^name\s*=\s*"([^"]*)"', re.MULTILINE)
_REVISION = re.compile(r'^(revision\s*=\s*)"[^"]*"', re.MULTILINE)
_FILES = re.compile(r"^(files\s*=\s*)\[(?:\s*\]|.*?^\])", re.MULTILINE | re.DOTALL)


def lock_asset(asset: Asset, hub: Hub, revision: str) -> Asset:
    """The asset as the hub has it at `revision` (branch, tag or commit) now.

    The hub tells the SHA-256 of large files; smaller ones are downloaded, held against git's object id, and hashed.

    Raises:
        ImageFault: no such repository or revision, no access, no matching file, or one that is not what the hub says.
        EnvironmentFault: no network, or no space for a file that must be hashed.
    """
    commit = hub.commit(asset, revision)
    files = hub.files(asset, commit)
    if not files:
        raise ImageFault(
            f"asset {asset.name}: no file of {asset.repository} at {commit} matches {', '.join(asset.allow)}",
            "correct 'allow' in its row",
        )
    with tempfile.TemporaryDirectory(prefix="kit-lock-") as folder, disk_faults(Path(folder)):
        try:
            pinned = tuple(_pinned(asset, commit, file, hub, Path(folder)) for file in files)
            return Asset.model_validate({**dict(asset), "revision": commit, "files": pinned})
        except ValueError as error:
            why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise ImageFault(
                f"asset {asset.name}: the hub lists what no row can hold: {why}",
                "look at the repository, and correct 'allow' in its row",
            ) from None


def _pinned(asset: Asset, commit: str, file: RemoteFile, hub: Hub, folder: Path) -> PinnedFile:
    if file.sha256 is not None:
        return PinnedFile(path=file.path, size=file.size, sha256=file.sha256)
    inside(file.path)
    part = folder / "part"
    part.unlink(missing_ok=True)
    whole = hub.download(asset, commit, file.path, file.size, part, lambda _count: None)
    content = part.read_bytes()
    if not whole or _blob_id(content) != file.blob_id:
        raise ImageFault(f"asset {asset.name}: {file.path} is not what the hub's own listing says", "try again later")
    return PinnedFile(path=file.path, size=file.size, sha256=hashlib.sha256(content).hexdigest())


def _blob_id(content: bytes) -> str:
    """Git's object id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def write_asset(path: Path, asset: Asset) -> bool:
    """Put revision and files into the asset's row, and change no other byte; False where they stand there already.

    Raises:
        ImageFault: the row has no line ``revision = "…"`` or no ``files = […]``, or the file cannot be written.
        UsageFault: the file is damaged.
    """
    rows = load_assets(path)
    if rows.get(asset.name) == asset:
        return False
    changed = _edited(path.read_text(encoding="utf-8"), asset)
    wanted = Assets(asset=tuple(asset if row.name == asset.name else row for row in rows.values()))
    if changed is None or _read(changed) != wanted:
        raise ImageFault(
            f"{path}: the row of {asset.name} is not written as kit can edit it",
            "give it the lines 'revision = \"\"' and 'files = []'",
        )
    try:
        replace_text(path, changed)
    except OSError as error:
        raise ImageFault(
            f"{path}: cannot be written: {error.strerror}", "check its permissions and free space"
        ) from None
    return True


def _edited(text: str, asset: Asset) -> str | None:
    starts = [match.start() for match in _ROW.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        row = text[start:end]
        name = _NAME.search(row)
        if name is None or name[1] != asset.name:
            continue
        row, revisions = _REVISION.subn(lambda match: f'{match[1]}"{asset.revision}"', row)
        row, lists = _FILES.subn(lambda match: match[1] + _files_text(asset.files), row)
        return text[:start] + row + text[end:] if (revisions, lists) == (1, 1) else None
    return None


def _files_text(files: tuple[PinnedFile, ...]) -> str:
    lines = (
        f'  {{ path = {json.dumps(file.path, ensure_ascii=False)}, size = {file.size}, sha256 = "{file.sha256}" }},\n'
        for file in files
    )
    return "[\n" + "".join(lines) + "]"


def _read(text: str) -> Assets | None:
    try:
        return Assets.model_validate(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, ValidationError):
        return None
