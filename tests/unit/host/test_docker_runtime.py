"""The container runtime when the engine goes away or refuses: no exception after the start, no folder that another user owns."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

from kit.errors import EnvironmentFault
from kit.events import Trouble
from kit.host import docker_runtime
from kit.host.container import container_spec, container_user
from kit.host.devices import ContainerDevices, EngineFacts
from kit.host.docker_runtime import DockerRuntime
from kit.profile import find_profile


class Gone:
    """A container of an engine that no longer answers."""

    id = "0" * 64
    asked = 0

    def start(self) -> None:
        """As long as it answered."""

    def _refuse(self, **_: object) -> None:
        self.asked += 1
        raise requests.ConnectionError("connection refused")

    reload = kill = logs = remove = _refuse


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DockerRuntime:
    monkeypatch.setattr(docker_runtime.time, "sleep", lambda seconds: None)
    (tmp_path / "logs").mkdir()
    spec = container_spec(
        find_profile("cpu"), "image:1", "id", tmp_path, tmp_path, ContainerDevices(), container_user()
    )
    containers = SimpleNamespace(create=lambda image, **settings: Gone())
    runtime = DockerRuntime(SimpleNamespace(containers=containers, version=dict), spec, EngineFacts())
    runtime.start()
    return runtime


def test_an_engine_that_is_silent_for_a_minute_ends_the_run(
    runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = docker_runtime.time.monotonic()
    assert runtime.ended() is None
    monkeypatch.setattr(docker_runtime.time, "monotonic", lambda: now + 61)
    ending = runtime.ended()
    assert ending is not None
    assert ending.trouble is Trouble.ENVIRONMENT
    assert "stopped answering" in ending.reason


def test_a_container_that_cannot_be_removed_is_named_with_what_to_do(runtime: DockerRuntime) -> None:
    (left,) = runtime.stop()
    assert "docker rm -f kit-id" in left
    assert runtime.stop() == ()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a folder away")
def test_a_folder_of_another_user_is_refused_before_the_start(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    spec = container_spec(
        find_profile("cpu"), "image:1", "id", tmp_path, tmp_path, ContainerDevices(), container_user()
    )
    with pytest.raises(EnvironmentFault, match="belongs to user 65534, and the container runs as user 0"):
        DockerRuntime(SimpleNamespace(), spec, EngineFacts()).start()


@pytest.mark.parametrize(
    ("devices", "request_for"),
    [
        (ContainerDevices(cdi=("nvidia.com/gpu=2",)), {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=2"]}),
        (ContainerDevices(gpu_ids=("GPU-7",)), {"Driver": "", "DeviceIDs": ["GPU-7"], "Capabilities": [["gpu"]]}),
    ],
)
def test_gpus_are_asked_for_by_name(tmp_path: Path, devices: ContainerDevices, request_for: dict[str, object]) -> None:
    """As the engine's interface has it (POST /containers/create, HostConfig.DeviceRequests)."""
    seen: dict[str, object] = {}
    containers = SimpleNamespace(create=lambda image, **settings: seen.update(settings) or Gone())
    spec = container_spec(find_profile("h200"), "image:1", "id", tmp_path, tmp_path, devices, container_user())
    DockerRuntime(SimpleNamespace(containers=containers, version=dict), spec, EngineFacts()).start()
    (asked,) = seen["device_requests"]
    assert {key: value for key, value in asked.items() if value} == {k: v for k, v in request_for.items() if v}
    assert seen["devices"] == []
