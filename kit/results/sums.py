"""``SHA256SUMS``: the checksums of all files of a results folder, in the format of ``sha256sum``; written last."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from kit.errors import UsageFault
from kit.results.files import write_atomically

SUMS_FILE = "SHA256SUMS"
SIGNATURE_FILE = "SHA256SUMS.sig"
_BESIDE = (SUMS_FILE, SIGNATURE_FILE)


def read_folder(folder: Path) -> dict[str, bytes]:
    """All files of a results folder by relative path, sorted.

    Raises:
        UsageFault: no such folder, or something in it that is no plain file.
    """
    try:
        paths = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
        odd = [path for path in paths if path.is_symlink() or not path.is_file()]
        if odd:
            raise UsageFault(f"{odd[0]} is no plain file", "remove it from the results folder")
        named = {path.relative_to(folder).as_posix(): path for path in paths}
        return {name: named[name].read_bytes() for name in sorted(named)}
    except OSError as error:
        raise UsageFault(
            f"{error.filename}: cannot be read: {error.strerror}", "name the results folder of a run"
        ) from None


def sums_of(files: Mapping[str, bytes]) -> bytes:
    """The content of ``SHA256SUMS`` for these files; itself and its signature are left out."""
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files) if name not in _BESIDE)
    return "".join(lines).encode()


def seal(folder: Path) -> Path:
    """Write ``SHA256SUMS`` over everything in `folder`; gives its path.

    Raises:
        UsageFault: a file cannot be read. OSError: the sums cannot be written.
    """
    path = folder / SUMS_FILE
    write_atomically(path, sums_of(read_folder(folder)))
    return path


def faults_in_sums(files: Mapping[str, bytes]) -> Iterator[str]:
    """What is wrong with the checksums, one line each; nothing where every byte of every file is as it was sealed."""
    if SUMS_FILE not in files:
        yield f"{SUMS_FILE} is missing: the run did not end, or the file was removed"
        return
    expected = sums_of(files)
    if files[SUMS_FILE] == expected:
        return
    told = _parse(files[SUMS_FILE])
    found = _parse(expected)
    yield from (f"{name} is missing, and {SUMS_FILE} names it" for name in sorted(told.keys() - found.keys()))
    yield from (f"{name} is not named in {SUMS_FILE}" for name in sorted(found.keys() - told.keys()))
    changed = sorted(name for name in told.keys() & found.keys() if told[name] != found[name])
    yield from (f"{name} was changed: its SHA-256 is not the one in {SUMS_FILE}" for name in changed)
    if told == found:
        yield f"{SUMS_FILE} is not as kit writes it"


def _parse(sums: bytes) -> dict[str, str]:
    lines = sums.decode(errors="replace").split("\n")
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines) if name}
