"""What a container engine says about itself."""

import re
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import requests
from docker.errors import DockerException
from docker.types import Ulimit

from kit.errors import EnvironmentFault
from kit.host.devices import EngineFacts
from kit.host.engine_faults import engine_says

if TYPE_CHECKING:
    from docker import DockerClient

_KIND = re.compile(r"""(?:^|[{,])\s*["']?kind["']?\s*:\s*["']?([\w.-]+/[\w.-]+)""", re.MULTILINE)
_FOLDERS = ("/etc/cdi", "/var/run/cdi")
# Podman 4.3.1 and 4.9.3 take a request for a CDI device through their socket, and give the container nothing (podman issue 28436).
_FIRST_WITH_CDI = {"docker": 25, "podman": 6}
_FIRST_WITH_ANNOTATIONS = (5, 1)
"""Podman's, of its Docker-compatible socket, by its release notes; crun alone heeds this one."""
_OPEN_FILES = 65_536  # as the upstream AMD CI asks for


def engine_facts(client: "DockerClient", root: Path = Path("/")) -> EngineFacts:
    """What the engine behind `client` can do; its machine is this one, so its CDI specifications are read here.

    Raises:
        EnvironmentFault: it stopped answering.
    """
    try:
        return facts_of(client.info(), client.version(), root)
    except (DockerException, requests.RequestException) as error:
        raise EnvironmentFault(
            f"the engine stopped answering: {engine_says(error)}", "see its log, then try again"
        ) from None


def facts_of(info: Mapping[str, Any], version: Mapping[str, Any], root: Path) -> EngineFacts:
    """From the engine's answers to ``GET /info`` and ``GET /version``.

    Args:
        root: where the machine's file tree begins.
    """
    components = [str(component.get("Name", "")) for component in version.get("Components") or ()]
    kind: Literal["docker", "podman"] = "podman" if any("podman" in c.casefold() for c in components) else "docker"
    number = str(version.get("Version") or "")
    major, *_ = release = tuple(map(int, re.findall(r"\d+", number)[:2])) or (0,)
    options = info.get("SecurityOptions") or ()
    folders: Iterable[str] = info.get("CDISpecDirs") or (_FOLDERS if kind == "podman" else ())
    if major < _FIRST_WITH_CDI[kind]:
        folders = ()
    return EngineFacts(
        kind=kind,
        version=number,
        rootless=bool(info.get("Rootless")) or "name=rootless" in options,
        cdi=_kinds(root / folder.lstrip("/") for folder in folders),
        remapped="name=userns" in options,
        keeps_groups=kind == "podman" and release >= _FIRST_WITH_ANNOTATIONS and info.get("DefaultRuntime") == "crun",
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


def engine_settings(engine: EngineFacts, pid_max: Path = Path("/proc/sys/kernel/pid_max")) -> dict[str, Any]:
    """Settings of a container that depend on the engine: limits that it can give, and user ids that are the host's.

    A remapped engine is told to leave this container out: what it writes into the results folder must belong to the caller.
    Limits never exceed the caller's own, which an engine on the same machine can give too; Podman asks for more than some
    machines allow, unless it is told.
    """
    limits = [_limit("nofile", _OPEN_FILES)]
    if engine.kind == "podman":
        limits.append(_limit("nproc", int(pid_max.read_text())))
    return {"ulimits": limits} | ({"userns_mode": "host"} if engine.remapped else {})


def _limit(name: str, wanted: int) -> Ulimit:
    """`wanted`, or this process's own hard limit where that is lower."""
    _, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    return Ulimit(name=name, soft=limit, hard=limit)
