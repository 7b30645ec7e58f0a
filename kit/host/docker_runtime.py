"""The worker in a container, through the Docker SDK for Python."""

import contextlib
import platform
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import docker
import requests
from docker.errors import APIError, DockerException, NotFound
from docker.types import DeviceRequest, LogConfig, Mount

from kit.errors import EnvironmentFault, ImageFault
from kit.events import Trouble
from kit.host.container import (
    ASSETS_FOLDER,
    RUN_FOLDER,
    RUN_LABEL,
    ContainerSpec,
    device_nodes,
    group_numbers,
)
from kit.host.runtime import Ending
from kit.process import exit_reason

_TIMEOUT_SECONDS = 60
_LOG_BYTES = 16 * 1024 * 1024
_STOPPED = ("exited", "dead")
Result = TypeVar("Result")


def connect(timeout: float = 5.0) -> "docker.DockerClient":
    """A client of an engine that answers (``DOCKER_HOST``, else the usual socket).

    Raises:
        EnvironmentFault: none does.
    """
    try:
        client = docker.from_env(timeout=timeout)
        client.ping()
    except (DockerException, requests.RequestException) as error:
        raise EnvironmentFault(
            f"no container engine answers ({_first_line(error)})",
            "start one (scripts/docker-engine.sh installs Docker on Debian and Ubuntu), or use --runtime local",
        ) from None
    client.api.timeout = _TIMEOUT_SECONDS
    return client


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


class DockerRuntime:
    """One container from `spec.image`, which must exist: nothing is ever pulled here."""

    name: Literal["docker"] = "docker"

    def __init__(self, client: "docker.DockerClient", spec: ContainerSpec) -> None:
        self._client = client
        self._spec = spec
        self._container: Any = None
        self._removed = False

    def start(self) -> dict[str, str]:
        """Create and start the container.

        Raises:
            ImageFault: the image is gone. EnvironmentFault: the engine refused, or a device is missing.
        """
        spec = self._spec
        settings: dict[str, Any] = {
            "name": spec.name,
            "command": spec.command,
            "labels": {RUN_LABEL: spec.run_id},
            "init": True,
            "network_mode": "none",
            "read_only": True,
            "tmpfs": {"/tmp": "mode=1777,exec"},
            "cap_drop": ["ALL"],
            "cap_add": list(spec.capabilities),
            "security_opt": spec.security,
            "user": spec.user,
            "mem_limit": spec.memory,
            "memswap_limit": spec.memory,
            "shm_size": spec.shm,
            "pids_limit": spec.pids,
            "devices": [f"{node}:{node}:rw" for node in device_nodes(spec)],
            "group_add": group_numbers(spec),
            "environment": spec.environment,
            "log_config": LogConfig(type="json-file", config={"max-size": "16m", "max-file": "1"}),
            "mounts": [
                Mount(RUN_FOLDER, str(spec.run_folder), type="bind"),
                Mount(ASSETS_FOLDER, str(spec.assets_folder), type="bind", read_only=True),
            ],
        }
        if spec.gpu_request:
            settings["device_requests"] = [DeviceRequest(count=spec.gpus, capabilities=[["gpu"]])]
        try:
            self._container = self._client.containers.create(spec.image, **settings)
            self._container.start()
        except NotFound:
            raise ImageFault(f"the image {spec.image} is gone", "build it again") from None
        except APIError as error:
            self.stop()
            raise EnvironmentFault(
                f"the engine refused the container: {_first_line(error)}", "see the message; check devices and limits"
            ) from None
        version = self._client.version()
        return {
            "engine": f"{version.get('Platform', {}).get('Name') or 'engine'} {version.get('Version', '?')}",
            "container": self._container.id,
            "image": spec.image,
            "platform": platform.platform(),
        }

    def ended(self) -> Ending | None:
        """How the container ended; None while it runs. An engine that is restarting is asked again later."""
        try:
            self._container.reload()
        except NotFound:
            self._removed = True
            return Ending(Trouble.CRASHED, "the container was removed by someone else")
        except (APIError, requests.RequestException):
            return None
        state = self._container.attrs["State"]
        if state["Status"] not in _STOPPED:
            return None
        code = int(state["ExitCode"])
        if state.get("OOMKilled") and code:
            return Ending(Trouble.ENVIRONMENT, f"container: out of memory (limit {self._spec.memory / 2**30:g} GiB)")
        reason = exit_reason(128 - code if 128 < code < 192 else code)
        return Ending(Trouble.CRASHED if code else None, f"container: {reason}")

    def stop(self) -> tuple[str, ...]:
        """Save the container's output to ``logs/container.log`` and remove the container, running or not."""
        if self._container is None or self._removed:
            return ()
        was_running = False
        with contextlib.suppress(APIError, requests.RequestException, NotFound):
            self._container.reload()
            was_running = self._container.status == "running"
            if was_running:
                self._container.kill()
        self._save_log()
        self._retry(lambda: self._container.remove(force=True, v=True))
        self._removed = True
        return (self._spec.name,) if was_running else ()

    def _save_log(self) -> None:
        path = self._spec.run_folder / "logs" / "container.log"
        with contextlib.suppress(APIError, requests.RequestException, NotFound, OSError), path.open("wb") as file:
            for chunk in self._container.logs(stream=True, follow=False):
                if file.tell() > _LOG_BYTES:
                    break
                file.write(chunk)

    def _retry(self, action: Callable[[], Result], attempts: int = 5) -> None:
        """Do `action` until the engine takes it; a container that is already gone is what we want."""
        for attempt in range(attempts):
            try:
                action()
            except NotFound:
                return
            except (APIError, requests.RequestException) as error:
                if attempt == attempts - 1:
                    raise EnvironmentFault(
                        f"the container {self._spec.name} could not be removed: {_first_line(error)}",
                        f"remove it with 'docker rm -f {self._spec.name}'",
                    ) from None
            else:
                return
