"""Resolves the requirements of an image to exact wheels, with pip's own resolver and without installing anything."""

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement

from kit.errors import ImageFault
from kit.host.lockfile import Pin, normalised
from kit.host.pip import run_pip
from kit.image import ImageDefinition, PythonTarget

_LEGACY = {"2_5": "manylinux1", "2_12": "manylinux2010", "2_17": "manylinux2014"}


@dataclass(frozen=True)
class Resolved:
    """One wheel that pip chose, and what it asks for."""

    pin: Pin
    requires: tuple[str, ...]


def target_options(target: PythonTarget) -> list[str]:
    """pip's options for wheels of this Python and platform, whatever Python runs pip."""
    newest, machine = target.platform.removeprefix("manylinux_2_").split("_", 1)
    tags: list[str] = []
    for minor in range(int(newest), 4, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if legacy := _LEGACY.get(f"2_{minor}"):
            tags.append(f"{legacy}_{machine}")
    tags.append(f"linux_{machine}")
    platforms = [option for tag in tags for option in ("--platform", tag)]
    return ["--only-binary=:all:", "--implementation", "cp", "--python-version", target.version, *platforms]


def resolve(definition: ImageDefinition) -> tuple[Pin, ...]:
    """The complete set of wheels: requirements with dependencies, then the exact pins without theirs.

    Raises:
        ImageFault: not resolvable, a wheel without hash, two versions of one, or something that the image's Python
            also needs. EnvironmentFault: no network, no pip, a full disk.
    """
    full = _report(definition.python, definition.requirements, ())
    _refuse_incomplete(definition, full)
    alone = _report(definition.python, definition.without_dependencies, ("--no-deps",))
    merged: dict[str, Pin] = {}
    for item in (*full, *alone):
        other = merged.setdefault(item.pin.name, item.pin)
        if other != item.pin:
            raise ImageFault(
                f"{definition.path}: {item.pin.name} is {other.version} by dependencies and {item.pin.version} by pin",
                "pin one version",
            )
    return tuple(sorted(merged.values()))


def _report(target: PythonTarget, requirements: Sequence[str], options: Sequence[str]) -> tuple[Resolved, ...]:
    if not requirements:
        return ()
    with tempfile.TemporaryDirectory(prefix="kit-resolve-") as folder:
        report = Path(folder) / "report.json"
        run_pip(
            *("install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report)),
            *("--target", str(Path(folder) / "target")),
            *target_options(target),
            *options,
            *requirements,
        )
        return tuple(_resolved(item) for item in json.loads(report.read_text(encoding="utf-8"))["install"])


def _resolved(item: dict[str, Any]) -> Resolved:
    metadata = item["metadata"]
    sha256 = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    if sha256 is None:
        raise ImageFault(
            f"pip gives no SHA-256 for {metadata['name']} {metadata['version']}", "use an index that has hashes"
        )
    return Resolved(
        Pin(normalised(metadata["name"]), metadata["version"], sha256), tuple(metadata.get("requires_dist", ()))
    )


def _refuse_incomplete(definition: ImageDefinition, found: Iterable[Resolved]) -> None:
    """pip reads markers (``python_version``) for the Python that runs it; this reads them for the image's."""
    by_name = {item.pin.name: item for item in found}
    version = definition.python.version
    environment: dict[str, Any] = dict(default_environment())
    environment |= {"python_version": version, "python_full_version": f"{version}.0"}
    waiting = [Requirement(text) for text in definition.requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    unmet: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        item = by_name.get(normalised(wanted.name))
        if item is None or not wanted.specifier.contains(item.pin.version, prereleases=True):
            unmet.add(f"{wanted.name}{wanted.specifier}")
            continue
        key = (item.pin.name, frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        extras = ("", *wanted.extras)
        for requirement in map(Requirement, item.requires):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in extras):
                waiting.append(requirement)
    if unmet:
        raise ImageFault(
            f"{definition.path}: Python {version} also needs {', '.join(sorted(unmet))}",
            f"add it to 'requirements', or lock with Python {version}",
        )
