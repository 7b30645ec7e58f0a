"""What a container engine says about itself."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.host.devices import EngineFacts

if TYPE_CHECKING:
    from docker import DockerClient

_KIND = re.compile(r"^\s*\"?(?:cdi)?[kK]ind\"?\s*:\s*[\"']?([\w.-]+/[\w.-]+)", re.MULTILINE)
_PODMAN_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_FIRST_DOCKER_WITH_CDI = 25


def engine_facts(client: "DockerClient", root: Path = Path("/")) -> EngineFacts:
    """What the engine behind `client` can do; its machine is this one, so its CDI specifications are read here."""
    return facts_of(client.info(), client.version(), root)


def facts_of(info: Mapping[str, Any], version: Mapping[str, Any], root: Path) -> EngineFacts:
    """From the engine's answers to ``GET /info`` and ``GET /version``.

    Args:
        root: where the machine's file tree begins.
    """
    components = [str(component.get("Name", "")) for component in version.get("Components") or ()]
    podman = any("podman" in name.casefold() for name in components)
    number = str(version.get("Version") or "")
    major = re.match(r"\d+", number)
    folders: Iterable[str] = info.get("CDISpecDirs") or ()
    if podman:
        folders = folders or _PODMAN_FOLDERS
    elif major is None or int(major[0]) < _FIRST_DOCKER_WITH_CDI:
        folders = ()
    return EngineFacts(
        kind="podman" if podman else "docker",
        version=number,
        rootless=bool(info.get("Rootless")) or "name=rootless" in (info.get("SecurityOptions") or ()),
        cdi=_kinds(root / folder.lstrip("/") for folder in folders),
    )


def _kinds(folders: Iterable[Path]) -> frozenset[str]:
    kinds: set[str] = set()
    for folder in folders:
        for file in (*folder.glob("*.yaml"), *folder.glob("*.json")):
            try:
                kinds |= set(_KIND.findall(file.read_text(errors="replace")))
            except OSError:
                continue
    return frozenset(kinds)
