"""``environment.json``: on what a run was made. A projection of the result, and the packages that the host side saw."""

import importlib.metadata
from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field

from kit.measurement import Record
from kit.results.model import RunResult

ENVIRONMENT_SCHEMA: Final = 1
_CHANGES = "+changes"
_OF_THE_GPU = ("device", "devices", "architecture", "cuda", "hip")
_DRIVER = ("driver.", "firmware.")
_OF_KIT = ("revision", "sources")
_PASSING = ("pid", "container")
_NOT_PACKAGES = ("kit", "kernel", "machine", "cpus")


class KitSources(Record):
    """Which kit it was.

    Attributes:
        revision: git commit, or "released" outside a checkout.
        clean: whether the tree was as committed; None where that is not known.
        sources: SHA-256 (hex) over all sources of the package.
    """

    version: str
    revision: str
    clean: bool | None
    sources: str


class Environment(Record):
    """The machine and the software of a run.

    Attributes:
        gpu: device, architecture, driver and firmware, as far as the sessions and the host's kernel told.
        image: id, tag and digests; only the definition where no container was used.
        host: host name, kernel, processor, memory, engine.
        packages: version by distribution, as the worker saw them.
        host_packages: version by distribution in the Python of the host side; without a container, also the worker's.
    """

    schema_version: Literal[1] = ENVIRONMENT_SCHEMA
    run_id: str
    kit: KitSources
    gpu: dict[str, str]
    image: dict[str, str]
    host: dict[str, str]
    packages: dict[str, str]
    host_packages: dict[str, str] = Field(default_factory=dict)


def environment_of(result: RunResult, host_packages: Mapping[str, str] | None = None) -> Environment:
    """The environment of a run, from what its result tells."""
    revision = result.host.get("revision", "unknown")
    return Environment(
        run_id=result.run_id,
        kit=KitSources(
            version=result.kit_version,
            revision=revision.removesuffix(_CHANGES),
            clean=None if revision in ("unknown", "released") else not revision.endswith(_CHANGES),
            sources=result.host.get("sources", ""),
        ),
        gpu=_gpu(result),
        image=dict(sorted(result.image.items())),
        host={
            key: value
            for key, value in sorted(result.host.items())
            if key not in _OF_KIT + _PASSING and not key.startswith(_DRIVER)
        },
        packages={key: value for key, value in sorted(result.worker.items()) if key not in _NOT_PACKAGES},
        host_packages=dict(sorted((host_packages or {}).items())),
    )


def _gpu(result: RunResult) -> dict[str, str]:
    told = [session.facts for session in result.sessions if "device" in session.facts]
    facts = {key: told[0][key] for key in _OF_THE_GPU if key in told[0]} if told else {}
    return facts | {key: value for key, value in sorted(result.host.items()) if key.startswith(_DRIVER)}


def installed_packages() -> dict[str, str]:
    """Version by name of every distribution in this Python."""
    found = ((d.metadata["Name"], d.version) for d in importlib.metadata.distributions())
    return {name.lower(): version for name, version in found if name}
