"""Renews what holds an image fast: the wheels of its lock, and the digest of its base."""

import re
from pathlib import Path

import docker
import requests
from docker.errors import DockerException

from kit.errors import ImageFault
from kit.host.engine_faults import engine_says
from kit.host.lockfile import replace_text, write_lock
from kit.host.resolve import resolve
from kit.image import ImageDefinition

_DIGEST_LINE = re.compile(r'^(digest\s*=\s*)"[^"]*"', re.MULTILINE)
_BASE_TABLE = re.compile(r"^\[base\]\s*$", re.MULTILINE)


def lock_wheels(definition: ImageDefinition) -> tuple[int, bool]:
    """Resolve anew and write the lock: how many wheels it holds, and whether it changed.

    Raises:
        ImageFault: not resolvable, or the lock cannot be written. EnvironmentFault: no network, no pip, a full disk.
    """
    pins = resolve(definition)
    return len(pins), write_lock(definition, pins)


def registry_digest(client: "docker.DockerClient", reference: str) -> str:
    """The digest that the registry gives for a tag now.

    Raises:
        ImageFault: the registry cannot be reached, or has no such tag.
    """
    try:
        found = client.api.inspect_distribution(reference)
    except (DockerException, requests.RequestException) as error:
        raise ImageFault(
            f"no registry tells the digest of {reference} ({engine_says(error)})", "lock again where it can be reached"
        ) from None
    return str(found["Descriptor"]["digest"])


def write_base_digest(path: Path, digest: str) -> bool:
    """Put `digest` into table ``[base]`` of a definition and no other byte; False where it stands there already.

    Raises:
        ImageFault: the table has no line ``digest = "…"``, or the file cannot be written.
    """
    text = path.read_text(encoding="utf-8")
    table = _BASE_TABLE.search(text)
    line = _DIGEST_LINE.search(text, table.end()) if table else None
    if line is None or "\n[" in text[table.end() if table else 0 : line.start()]:
        raise ImageFault(f"{path}: table [base] has no line 'digest = \"\"'", "add it")
    changed = f'{text[: line.start()]}{line[1]}"{digest}"{text[line.end() :]}'
    if changed == text:
        return False
    try:
        replace_text(path, changed)
    except OSError as error:
        raise ImageFault(f"{path}: cannot be written: {error.strerror}", "check its permissions") from None
    return True
