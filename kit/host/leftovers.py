"""Containers of runs whose kit is gone, as after a SIGKILL: found by their label, named, removed. No other container is touched."""

from dataclasses import dataclass
from typing import Any

import docker
import requests
from docker.errors import DockerException, NotFound

from kit.finding import Finding, Severity
from kit.host.container import OWNER_LABEL, RUN_LABEL
from kit.host.engine_faults import engine_says
from kit.host.owner import Owner

_CHECK = "leftovers"


@dataclass(frozen=True)
class Leftover:
    """A container of a run that nobody follows any more."""

    container: Any
    run_id: str
    owner: Owner

    def __str__(self) -> str:
        return (
            f"container {self.container.name} ({self.container.status}) of run {self.run_id}, "
            f"whose kit (process {self.owner.pid}) is gone"
        )


def find(client: "docker.DockerClient") -> list[Leftover]:
    """The leftovers of this user, oldest name first. Raises what the engine's client raises."""
    me = Owner.myself()
    found = []
    for container in client.containers.list(all=True, filters={"label": [RUN_LABEL, OWNER_LABEL]}, ignore_removed=True):
        owner = Owner.read(container.labels.get(OWNER_LABEL, ""))
        if owner is not None and owner.user == me.user and owner.gone(me):
            found.append(Leftover(container, container.labels[RUN_LABEL], owner))
    return sorted(found, key=lambda left: str(left.container.name))


def told(client: "docker.DockerClient") -> tuple[Finding, ...]:
    """One finding for each leftover; nothing is removed."""
    return _findings(client, lambda left: f"{left}", "the next run removes it")


def removed(client: "docker.DockerClient") -> tuple[Finding, ...]:
    """Remove the leftovers; one finding for each says what became of it."""
    return _findings(client, _remove, "")


def _findings(client: "docker.DockerClient", act: Any, remedy: str) -> tuple[Finding, ...]:
    why = "it may hold memory and GPUs that this run needs"
    try:
        return tuple(
            Finding(check=_CHECK, severity=Severity.WARN, what=act(left), why=why, remedy=remedy)
            for left in find(client)
        )
    except (DockerException, requests.RequestException) as error:
        what = f"the engine does not list its containers: {engine_says(error)}"
        return (Finding(check=_CHECK, severity=Severity.WARN, what=what, why=why, remedy="see its log"),)


def _remove(left: Leftover) -> str:
    try:
        left.container.remove(force=True, v=True)
    except NotFound:
        return f"{left}; it went by itself"
    except (DockerException, requests.RequestException) as error:
        return f"{left}, could not be removed ({engine_says(error)}); run 'docker rm -f {left.container.name}'"
    return f"{left}; it was removed"
