"""The container runtime when the engine goes away or refuses: no exception after the start, no folder that another user owns."""

import os
from pathlib import Path
from types import SimpleNamespace

import docker
import pytest
import requests
from docker.errors import APIError, NotFound
from docker.models.containers import ContainerCollection

from kit.errors import EnvironmentFault, UsageFault
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


class Killed:
    """A container that a signal ended; what `remove` does is the test's."""

    id = "0" * 64
    status = "exited"

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.attrs = {"State": {"Status": "exited", "ExitCode": 137}}

    def start(self) -> None:
        """As ever."""

    def reload(self) -> None:
        """It is still there."""

    def logs(self, **_: object) -> list[bytes]:
        return [b"its last words"]

    def remove(self, **_: object) -> None:
        if (answer := self.answers.pop(0)) is not None:
            raise answer


IN_PROGRESS = APIError("removal of container is already in progress")
SILENT = requests.ConnectionError("connection reset")


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([None], "container: killed by SIGKILL"),
        ([NotFound("no such container")], "the container was removed by someone else"),
        ([IN_PROGRESS, NotFound("no such container")], "the container was removed by someone else"),
        ([SILENT, NotFound("it may be this kit's own doing")], "container: killed by SIGKILL"),
    ],
)
def test_a_killed_container_that_another_removes_is_told_so(
    runtime: DockerRuntime, tmp_path: Path, answers: list[Exception | None], reason: str
) -> None:
    """Podman kills what it removes, and it can be seen in between."""
    runtime._container = Killed(*answers)
    ending = runtime.ended()
    assert ending is not None
    assert (ending.trouble, ending.reason) == (Trouble.CRASHED, reason)
    assert (tmp_path / "logs" / "container.log").read_bytes() == b"its last words"
    assert runtime.stop() == ()
    assert runtime._container.answers == []


@pytest.mark.parametrize(
    "address", ["nonsense", "tcp://127.0.0.1:abc", "tcp://[::1", "tcp://a\nb:1", "unix:///no.sock"]
)
def test_an_address_at_which_no_engine_answers_is_named_on_one_line(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(EnvironmentFault) as caught:
        docker_runtime.connect()
    said = str(caught.value)
    assert said.startswith(f"no container engine answers at DOCKER_HOST={' '.join(address.split())} (")
    assert "correct DOCKER_HOST" in said and "\n" not in said


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


@pytest.mark.parametrize("name", ["a,readonly", 'a"b', "a\nb"])
def test_a_folder_that_podman_would_split_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for run, assets in ((folder, tmp_path), (tmp_path, folder)):
        spec = container_spec(find_profile("cpu"), "i:1", "id", run, assets, ContainerDevices(), container_user())
        with pytest.raises(UsageFault, match=r"podman cannot be given the folder .*; name another, or use docker"):
            DockerRuntime(SimpleNamespace(), spec, EngineFacts("podman", "6.0")).start()


def test_groups_are_kept_by_an_annotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Podman's socket takes ``keep-groups`` for a group's name and refuses it (podman issue 14881). All else is as without."""
    sent: list[dict[str, object]] = []
    api = docker.APIClient(base_url="unix:///nowhere.sock", version="1.43")
    monkeypatch.setattr(api, "create_container_from_config", lambda config, *_: sent.append(config) or {"Id": "1"})
    client = docker.DockerClient(base_url="unix:///nowhere.sock", version="1.43")
    client.api = api
    monkeypatch.setattr(type(client), "containers", property(lambda self: Containers(self)))
    for groups in ((), ("keep-groups",)):
        devices = ContainerDevices(devices=("/dev/kfd",), groups=groups)
        spec = container_spec(
            find_profile("mi300x"), "image:1", "id", tmp_path, tmp_path, devices, container_user(rootless=True)
        )
        DockerRuntime(client, spec, EngineFacts("podman", "5.4")).start()
    plain, kept = sent
    assert kept["HostConfig"].pop("Annotations") == {"run.oci.keep_original_groups": "1"}  # type: ignore[attr-defined]
    assert kept == plain


class Containers(ContainerCollection):
    """Those of an engine that makes each container as it is told."""

    def get(self, container_id: str) -> Gone:
        """It is there."""
        return Gone()
