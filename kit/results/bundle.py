"""The bundle: a results folder as one deterministic ``.tar.zst``, without user names and secrets, signed on demand."""

import contextlib
import gc
import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from kit.errors import UsageFault
from kit.results.environment import environment_of
from kit.results.files import write_all, write_atomically
from kit.results.record import differences
from kit.results.scrub import scrubber_for
from kit.results.signature import sign
from kit.results.stored import (
    ENVIRONMENT_FILE,
    MAGIC,
    PLAN_FILE,
    PROFILE_FILE,
    SUFFIX,
    WAIVERS_FILE,
    NoRun,
    StoredRun,
    as_json,
    existing,
    parse_run,
)
from kit.results.sums import SIGNATURE_FILE, SUMS_FILE, faults_in_sums, read_folder, sums_of

_LEVEL = 9
_MOST_BYTES = 2 * 2**30


def read_run(path: Path) -> dict[str, bytes]:
    """The files of a results folder or a bundle, by relative path.

    Raises:
        UsageFault: neither, or not readable.
    """
    return read_folder(path) if existing(path).is_dir() else unpack(path)


def make_bundle(folder: Path, output: Path | None = None, key: Path | None = None) -> Path:
    """Pack a results folder; gives the bundle's path, by default ``<folder>.tar.zst`` beside it.

    Events, logs and settings are scrubbed, and every report is made anew from them, so that it says what they say.

    Args:
        key: file of a private key that ``ssh-keygen`` can sign with.

    Raises:
        UsageFault: the folder was changed since its run, or its result does not follow from its events.
        EnvironmentFault: the bundle cannot be written, or not signed.
    """
    folder = Path(existing(folder).absolute())
    if not folder.is_dir():
        raise NoRun(f"{folder} is no results folder of kit", "name what 'kit run' wrote")
    target = output or folder.with_name(folder.name + SUFFIX)
    files = read_folder(folder)
    with _collector_paused():
        clean, run = _clean(files, folder)
    if key is not None:
        clean[SIGNATURE_FILE] = sign(clean[SUMS_FILE], key)
    try:
        write_atomically(target, pack(clean, f"kit-{run.plan.run_id}", int(run.result.finished)))
    except OSError as error:
        raise UsageFault(f"{target} cannot be written: {error.strerror}", "name another file with --output") from None
    return target


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Thousands of cases are many objects and no cycles: to look for some again and again takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _clean(files: Mapping[str, bytes], folder: Path) -> tuple[dict[str, bytes], StoredRun]:
    """The files without user names and secrets, with reports and checksums made anew; and the run that they tell of."""
    if faults := list(faults_in_sums(files)):
        raise _not_true(folder, faults)
    scrub = scrubber_for(files)
    texts = {name: scrub(data) for name, data in files.items() if name.endswith((".json", ".jsonl"))}
    for name in texts.keys() & {PROFILE_FILE, WAIVERS_FILE}:
        plan = texts.get(PLAN_FILE, b"")
        texts[PLAN_FILE] = plan.replace(_digest(files[name]), _digest(texts[name]))
    told = parse_run(texts)
    result = told.rejudged()
    if any(differences(told.result, result, exact=False)):
        original = parse_run(files)
        faults = list(differences(original.result, original.rejudged(), exact=False))
        raise _not_true(folder, faults or ["taking out user names would change what it says"])
    texts[ENVIRONMENT_FILE] = as_json(environment_of(result, told.environment.host_packages))
    with tempfile.TemporaryDirectory(prefix="kit-bundle-") as place:
        for path in write_all(result, Path(place)):
            texts[path.name] = path.read_bytes()
    texts |= {name: scrub(files[name]) for name in files.keys() - texts.keys() - {SUMS_FILE, SIGNATURE_FILE}}
    texts[SUMS_FILE] = sums_of(texts)
    return texts, told


def _not_true(folder: Path, faults: list[str]) -> UsageFault:
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return UsageFault(f"{folder} is not as its run left it: {faults[0]}{more}", "'kit verify' lists all; run again")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _tar(files: Mapping[str, bytes], top: str, mtime: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mtime, entry.mode = len(files[name]), mtime, 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    return buffer.getvalue()


def pack(files: Mapping[str, bytes], top: str, mtime: int) -> bytes:
    """The files below one folder `top`: the same bytes for the same files, whoever packs them."""
    import zstandard

    packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)
    return packer.compress(_tar(files, top, mtime))


def unpack(path: Path) -> dict[str, bytes]:
    """The files of a bundle by relative path.

    Raises:
        UsageFault: unreadable, or not a bundle that kit made.
    """
    try:
        return unpack_bytes(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageFault(f"{path}: cannot be read: {error.strerror}", "check the path and its permissions") from None


def unpack_bytes(data: bytes, name: str) -> dict[str, bytes]:
    """The files of a bundle by relative path. Nothing is written; only what `pack` makes is taken.

    Args:
        name: what the bundle is called in an error.

    Raises:
        UsageFault: not a bundle that kit made.
    """
    import zstandard

    try:
        plain = _decompressed(data)
        files, top, mtime = _untar(plain)
    except _NotOurs as error:
        why = str(error)
    except (zstandard.ZstdError, tarfile.TarError, ValueError, EOFError) as error:
        why = f"it is damaged ({' '.join(str(error).split())[:80]})"
    else:
        if _tar(files, top, mtime) == plain:
            return files
        why = "its archive was changed, or was made by another program"
    raise UsageFault(f"{name} is not a bundle of kit: {why}", "name a results folder, or what 'kit bundle' wrote")


class _NotOurs(Exception):
    """Why some bytes are no bundle, in one clause."""


def _decompressed(data: bytes) -> bytes:
    import zstandard

    if not data.startswith(MAGIC):
        raise _NotOurs("it is not compressed with zstd")
    if not 0 < zstandard.frame_content_size(data) <= _MOST_BYTES:
        raise _NotOurs(f"its size is not told, or above {_MOST_BYTES >> 30} GiB")
    reader = zstandard.ZstdDecompressor().decompressobj()
    plain: bytes = reader.decompress(data)
    if not reader.eof or reader.unused_data:
        raise _NotOurs("it is cut off, or something was added to its end")
    return plain


def _untar(plain: bytes) -> tuple[dict[str, bytes], str, int]:
    """The files, the name of the folder that they are in, and their time."""
    with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
        entries = archive.getmembers()
        tops = {entry.name.partition("/")[0] for entry in entries}
        if len(tops) != 1 or "" in tops or not all(entry.isfile() and "/" in entry.name for entry in entries):
            raise _NotOurs("it holds something beside plain files in one folder")
        files = {entry.name.partition("/")[2]: _content(archive, entry) for entry in entries}
        return files, tops.pop(), int(entries[0].mtime)


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(entry)
    return stream.read() if stream else b""
