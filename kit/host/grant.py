"""The GPUs of a run, held from before its worker starts until nothing of it is left."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from kit.errors import UsageFault
from kit.host.devices import ContainerDevices, EngineFacts, container_devices, device_nodes, host_gpus
from kit.host.gpu import Gpu
from kit.host.gpu_lock import reserved
from kit.host.node_watch import NodeWatch
from kit.host.runtime import Ending, Runtime
from kit.profile import Profile

VISIBLE: Final = {
    "amd": ("HIPVISIBLE_DEVICES", "ROCRVISIBLE_DEVICES", "CUDAVISIBLE_DEVICES"),
    "nvidia": ("CUDAVISIBLE_DEVICES",),
}
"""Variables by which a caller gives a job its GPUs; the first of each vendor is the one that kit sets."""


@dataclass
class Grant:
    """GPUs that this run alone may use until `held` is closed, and how a worker reaches them."""

    gpus: tuple[Gpu, ...] = ()
    devices: ContainerDevices = field(default_factory=ContainerDevices)
    held: ExitStack = field(default_factory=ExitStack)

    @property
    def facts(self) -> dict[str, str]:
        """Which GPUs they are: number and unique id of each."""
        return {"gpus": ", ".join(f"{gpu.index} ({gpu.unique_id})" for gpu in self.gpus)} if self.gpus else {}


def container_grant(profile: Profile, wanted: tuple[int, ...], engine: EngineFacts, root: Path = Path("/")) -> Grant:
    """Hold GPUs for a container of `engine`.

    Raises:
        KitError: as `kit.host.gpu_lock.reserved` and `container_devices`.
    """
    if profile.gpus == 0:
        return Grant()
    with ExitStack() as held:
        gpus = held.enter_context(reserved(profile, host_gpus(root), wanted))
        devices = container_devices(profile, gpus, device_nodes(gpus, root), engine, os.getuid())
        return Grant(gpus, devices, held.pop_all())


def local_grant(profile: Profile, wanted: tuple[int, ...], environment: Mapping[str, str]) -> Grant:
    """Hold GPUs for a worker without a container. What a caller has shown this process by a variable is left as it is.

    Raises:
        UsageFault: the caller has chosen already, and --gpus says otherwise. KitError: as `kit.host.gpu_lock.reserved`.
    """
    names = VISIBLE.get(profile.vendor, ())
    if not names:
        return Grant()
    if given := [name for name in names if environment.get(name)]:
        if wanted:
            raise UsageFault(f"{given[0]} is set, and --gpus chooses too", "drop one of the two")
        return Grant()
    with ExitStack() as held:
        gpus = held.enter_context(reserved(profile, host_gpus(), wanted))
        shown = {names[0]: ",".join(str(gpu.index) for gpu in gpus)}
        return Grant(gpus, ContainerDevices(environment=shown), held.pop_all())


class Holding:
    """A runtime that gives its GPUs back when it has ended, and has looked by then at what it left on them (`on_gpus`)."""

    def __init__(self, runtime: Runtime, grant: Grant) -> None:
        self._runtime = runtime
        self._grant = grant
        self._watch: NodeWatch | None = NodeWatch(host_gpus, grant.gpus)
        self.on_gpus: tuple[str, ...] = ()

    @property
    def name(self) -> Literal["docker", "local"]:
        """Of the runtime."""
        return self._runtime.name

    def start(self) -> dict[str, str]:
        """Start it; the facts name the GPUs too."""
        return self._runtime.start() | self._grant.facts

    def ended(self) -> Ending | None:
        """How it ended."""
        return self._runtime.ended()

    def stop(self) -> tuple[str, ...]:
        """Stop it, then give the GPUs back."""
        left = self._runtime.stop()
        if self._watch is not None:
            self.on_gpus, self._watch = self._watch.left(), None
        self._grant.held.close()
        return left
