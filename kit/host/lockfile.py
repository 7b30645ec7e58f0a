"""The lock of an image: every wheel by name, version and SHA-256, as a requirements file that pip itself can check."""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kit.errors import ImageFault
from kit.image import ImageDefinition

_PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+) --hash=sha256:(?P<sha256>[0-9a-f]{64})$")
_INPUTS = re.compile(r"^# requirements: sha256:(?P<digest>[0-9a-f]{64})$", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Pin:
    """One wheel: normalised name, version, and SHA-256 (hex) of the file."""

    name: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """As pip reads it, in one line."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


def normalised(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def inputs_digest(definition: ImageDefinition) -> str:
    """SHA-256 (hex) over what a resolution starts from: a lock made from other requirements is stale."""
    inputs = [
        definition.python.version,
        definition.python.platform,
        sorted(definition.requirements),
        sorted(definition.without_dependencies),
    ]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


def lock_text(definition: ImageDefinition, pins: Iterable[Pin]) -> str:
    """The lock: the same pins always give the same bytes."""
    header = (
        f"# Wheels of image '{definition.name}' for Python {definition.python.version}, {definition.python.platform}.\n"
        f"# Made by 'kit images lock {definition.name}' with pip's resolver; not to be edited.\n"
        "# The set is complete: install it with 'pip install --require-hashes --no-deps -r' and this file.\n"
        f"# requirements: sha256:{inputs_digest(definition)}\n"
    )
    return header + "".join(f"{pin.name}=={pin.version} \\\n    --hash=sha256:{pin.sha256}\n" for pin in sorted(pins))


def write_lock(definition: ImageDefinition, pins: Iterable[Pin]) -> bool:
    """Write the lock whole or not at all; False where it already says the same.

    Raises:
        ImageFault: the folder cannot be written to.
    """
    text = lock_text(definition, pins)
    path = definition.lock_path
    try:
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return False
        replace_text(path, text)
    except OSError as error:
        raise ImageFault(f"{path}: cannot be written: {error.strerror}", "check permissions and free space") from None
    return True


def replace_text(path: Path, text: str) -> None:
    """Put `text` in the place of the file, in one step."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_lock(definition: ImageDefinition) -> tuple[Pin, ...]:
    """The pins of a definition's lock.

    Raises:
        ImageFault: no lock, a damaged one, or one made from other requirements.
    """
    path = definition.lock_path
    remedy = f"run 'kit images lock {definition.name}'"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ImageFault(f"{path}: cannot be read: {error.strerror}", remedy) from None
    inputs = _INPUTS.search(text)
    if inputs is None or inputs["digest"] != inputs_digest(definition):
        raise ImageFault(f"{path} was made from other requirements than {definition.path.name}", remedy)
    return tuple(_pins(path, text, remedy))


def _pins(path: Path, text: str, remedy: str) -> Iterable[Pin]:
    for line in text.replace(" \\\n   ", "").splitlines():
        if not line or line.startswith("#"):
            continue
        match = _PIN.match(line)
        if match is None:
            raise ImageFault(f"{path}: not a pinned wheel: '{line[:80]}'", remedy)
        yield Pin(match["name"], match["version"], match["sha256"])
