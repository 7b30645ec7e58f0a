"""The worker in a container, through the Docker SDK for Python."""

import contextlib
import os
import platform
import signal
import time
from dataclasses import dataclass
from typing import Any, Literal

import docker
import requests
from docker.errors import APIError, DockerException, NotFound
from docker.types import DeviceRequest, LogConfig, Mount

from kit.errors import EnvironmentFault, ImageFault, UsageFault
from kit.events import Trouble
from kit.host.container import (
    LOG_LIMITS,
    OWNER_LABEL,
    RUN_FOLDER,
    RUN_LABEL,
    TMPFS,
    ContainerSpec,
)
from kit.host.devices import KEEP_GROUPS, EngineFacts
from kit.host.engine import engine_settings
from kit.host.engine_faults import engine_says
from kit.host.owner import Owner
from kit.host.runtime import Ending, ending_of

_TIMEOUT_SECONDS = 20
_SILENCE_SECONDS = 60.0
_REMOVE_ATTEMPTS = 5
_LOG_BYTES = 16 * 1024 * 1024
_STOPPED = ("exited", "dead", "stopped")
_ALIVE = ("running", "paused", "restarting")
_KILLED = 128 + signal.SIGKILL
_KEEPS_GROUPS = "run.oci.keep_original_groups"
"""What ``podman run --group-add keep-groups`` asks crun for; Podman's socket does not know that word (podman issue 14881)."""
_REMOVED = Ending(Trouble.CRASHED, "the container was removed by someone else")


@dataclass(frozen=True)
class _Removal:
    """Whether the container is gone now, by whom, and why it is not."""

    gone: bool
    by_another: bool = False
    problem: str = ""


def connect(timeout: float = _TIMEOUT_SECONDS) -> "docker.DockerClient":
    """A client of an engine that answers (``DOCKER_HOST``, else the usual socket).

    Raises:
        EnvironmentFault: none does.
    """
    try:
        client = docker.from_env(timeout=timeout)
        client.ping()
    # ValueError: a DOCKER_HOST that is no URL.
    except (DockerException, requests.RequestException, ValueError) as error:
        told = engine_says(os.environ.get("DOCKER_HOST", ""))
        remedy = "start one (scripts/docker-engine.sh installs Docker on Debian and Ubuntu), or use --runtime local"
        raise EnvironmentFault(
            f"no container engine answers{f' at DOCKER_HOST={told}' if told else ''} ({engine_says(error)})",
            f"correct DOCKER_HOST, {remedy}" if told else remedy,
        ) from None
    client.api.timeout = _TIMEOUT_SECONDS
    return client


class DockerRuntime:
    """One container from `spec.image`, which must exist: nothing is ever pulled here."""

    name: Literal["docker"] = "docker"

    def __init__(self, client: "docker.DockerClient", spec: ContainerSpec, engine: EngineFacts) -> None:
        self._client = client
        self._engine = engine
        self._spec = spec
        self._container: Any = None
        self._removed = False
        self._heard = time.monotonic()

    def start(self) -> dict[str, str]:
        """Create and start the container.

        Raises:
            ImageFault: the image is gone. EnvironmentFault: the engine refused, a device is missing, or the results folder
                is closed to the container's user. UsageFault: the engine cannot be given a folder of that name.
        """
        spec = self._spec
        _refuse_closed_folder(spec)
        if self._engine.kind == "podman":
            _refuse_split_names(spec)
        settings: dict[str, Any] = {
            "name": spec.name,
            "command": spec.command,
            "labels": {RUN_LABEL: spec.run_id, OWNER_LABEL: Owner.myself().label},
            "init": True,
            "network_mode": "none",
            "read_only": True,
            "tmpfs": {"/tmp": TMPFS},
            "cap_drop": ["ALL"],
            "cap_add": list(spec.capabilities),
            "security_opt": spec.security,
            "user": spec.user,
            "mem_limit": spec.memory,
            "memswap_limit": spec.memory,
            "shm_size": spec.shm,
            "pids_limit": spec.pids,
            "devices": [f"{node}:{node}:rw" for node in spec.devices.devices],
            "group_add": [group for group in spec.devices.groups if group != KEEP_GROUPS],
            "environment": spec.environment,
            "log_config": LogConfig(type="json-file", config=LOG_LIMITS),
            "mounts": [
                Mount(RUN_FOLDER, str(spec.run_folder), type="bind"),
                *(Mount(place, str(path), type="bind", read_only=True) for place, path in spec.read_only.items()),
            ],
        }
        if spec.devices.cdi:
            settings["device_requests"] = [DeviceRequest(driver="cdi", device_ids=list(spec.devices.cdi))]
        if spec.devices.gpu_ids:
            settings["device_requests"] = [DeviceRequest(device_ids=list(spec.devices.gpu_ids), capabilities=[["gpu"]])]
        self._create_and_start(settings | engine_settings(self._engine))
        return {
            "engine": f"{self._engine.kind} {self._engine.version}",
            "container": self._container.id,
            "image": spec.image,
            "platform": platform.platform(),
        }

    def _create_and_start(self, settings: dict[str, Any]) -> None:
        spec = self._spec
        try:
            self._container = self._created(settings)
            self._container.start()
        except NotFound:
            self.stop()
            raise ImageFault(f"the image {spec.image} is gone", "build it again") from None
        except APIError as error:
            self.stop()
            raise EnvironmentFault(
                f"the engine refused the container: {engine_says(error)}", "see the message; check devices and limits"
            ) from None
        except requests.RequestException as error:
            with contextlib.suppress(DockerException, requests.RequestException):
                self._client.api.remove_container(spec.name, force=True, v=True)
            raise EnvironmentFault(
                f"the engine did not start the container: {engine_says(error)}", "see its log, then try again"
            ) from None

    def _created(self, settings: dict[str, Any]) -> Any:
        """The SDK's `containers.create`; that knows no annotations (docker 7.2), so with one its two halves are used apart."""
        if KEEP_GROUPS not in self._spec.devices.groups:
            return self._client.containers.create(self._spec.image, **settings)
        api = self._client.api
        config = {key: settings.pop(key) for key in ("name", "command", "labels", "user", "environment")}
        host_config = api.create_host_config(**settings) | {"Annotations": {_KEEPS_GROUPS: "1"}}
        made = api.create_container(self._spec.image, host_config=host_config, **config)
        return self._client.containers.get(made["Id"])

    def ended(self) -> Ending | None:
        """How the container ended; None while it runs. An engine that is restarting is asked again later.

        Whoever removes a running container has Podman kill it first: so a killed one is removed here, and what the engine says to
        that tells whether another was faster.
        """
        try:
            self._container.reload()
        except NotFound:
            self._removed = True
            return _REMOVED
        except (APIError, requests.RequestException) as error:
            if time.monotonic() - self._heard < _SILENCE_SECONDS:
                return None
            return Ending(Trouble.ENVIRONMENT, f"the container engine stopped answering: {engine_says(error)}")
        self._heard = time.monotonic()
        state = self._container.attrs["State"]
        if state["Status"] not in _STOPPED:
            return None
        code = int(state["ExitCode"])
        if state.get("OOMKilled") and code:
            return Ending(Trouble.ENVIRONMENT, f"container: out of memory (limit {self._spec.memory / 2**30:g} GiB)")
        if code == _KILLED and self._taken_away():
            return _REMOVED
        return ending_of(128 - code if 128 < code < 192 else code, "container")

    def stop(self) -> tuple[str, ...]:
        """Save the container's output to ``logs/container.log`` and remove the container, running or not.

        An engine that does not answer is asked a few times; then the container is named as left behind, with what to do.
        """
        if self._container is None or self._removed:
            return ()
        was_running = False
        with contextlib.suppress(APIError, requests.RequestException, NotFound):
            self._container.reload()
            was_running = self._container.status in _ALIVE
            if was_running:
                self._container.kill()
        self._save_log()
        self._removed = True
        removed = self._remove()
        if not removed.gone:
            why, name = removed.problem, self._spec.name
            return (f"container {name}, which could not be removed ({why}); run 'docker rm -f {name}'",)
        return (f"container {self._spec.name}",) if was_running else ()

    def _save_log(self) -> None:
        path = self._spec.run_folder / "logs" / "container.log"
        with contextlib.suppress(APIError, requests.RequestException, NotFound, OSError), path.open("wb") as file:
            for chunk in self._container.logs(stream=True, follow=False):
                if file.tell() > _LOG_BYTES:
                    break
                file.write(chunk)

    def _taken_away(self) -> bool:
        """Remove it, with its output saved; True where someone else had done so."""
        self._save_log()
        removed = self._remove()
        self._removed = removed.gone
        return removed.by_another

    def _remove(self) -> "_Removal":
        """Remove the container; an engine that does not answer, or is at it already, is asked a few times."""
        problem, unheard = "", False
        for attempt in range(_REMOVE_ATTEMPTS):
            time.sleep(attempt)
            try:
                self._container.remove(force=True, v=True)
            except NotFound:
                return _Removal(gone=True, by_another=not unheard)
            except APIError as error:
                problem = engine_says(error)
            except requests.RequestException as error:
                problem, unheard = engine_says(error), True  # it may have been done all the same
            else:
                return _Removal(gone=True)
        return _Removal(gone=False, problem=problem)


def _refuse_closed_folder(spec: ContainerSpec) -> None:
    """Root in the container has no capabilities, so it cannot write where another user owns the folder, as root outside can.

    Whatever the container calls its user, on this machine it is the caller.
    """
    info = spec.run_folder.stat()
    user = os.getuid()
    if info.st_uid != user and not info.st_mode & 0o002:
        raise EnvironmentFault(
            f"the output folder {spec.run_folder} belongs to user {info.st_uid}, and the container runs as user {user}",
            "name a folder of your own with --output",
        )


def _refuse_split_names(spec: ContainerSpec) -> None:
    """Podman's socket writes a mount as one line of CSV, unquoted (seen in 4.3.1, and in the source of 6.0)."""
    for folder in (spec.run_folder, *spec.read_only.values()):
        if set(str(folder)) & set(',"\r\n'):
            raise UsageFault(
                f"podman cannot be given the folder {folder}: its socket splits names at commas, quotes and line ends",
                "name another, or use docker",
            )
