"""What happens to an engine itself: restarted, killed, or with remapped users. On an engine of the test's own."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from kit.events import CaseStarted
from kit.host.image_store import check_image
from kit.image import find_image
from tests.docker.launch_stage import GREEN, IN_FLIGHT, Stage, acts, told_by

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.getuid() != 0 or shutil.which("dockerd") is None, reason="needs root and dockerd"),
]


class OwnEngine:
    """A second dockerd with folders, users and a network of its own, which may be killed.

    A dockerd that is told to have no bridge removes ``docker0``, whose ever it is; so it must not see that of the machine.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"unix://{folder}/docker.sock"
        places = {"root": "containerd", "state": "containerd-state", "address": "containerd.sock"}
        self._containerd = self._process_of("containerd", *(f"--{k}={folder / v}" for k, v in places.items()))
        self.start()

    def _process_of(self, *command: str) -> "subprocess.Popen[bytes]":
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def start(self) -> None:
        """Start dockerd, and wait until it answers."""
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid", "containerd": "containerd.sock"}
        self._process = self._process_of(
            "unshare",
            "--net",
            "dockerd",
            *(f"--{name}={self._folder / place}" for name, place in places.items()),
            f"--host={self.url}",
            "--userns-remap=default",
            "--bridge=none",
            "--iptables=false",
            "--ip-forward=false",
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                self.client = docker.DockerClient(base_url=self.url, timeout=30)
                return
            except docker.errors.DockerException:
                told = (self._folder / "log").read_text()[-1000:]
                assert time.monotonic() < deadline and self._process.poll() is None, told
                time.sleep(0.1)

    def remove(self) -> None:
        """End it for good, its containerd too, and remove all it has. No container may be left in it."""
        self.end(signal.SIGKILL)
        self._containerd.kill()
        self._containerd.wait(60)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{self._folder}/")]):
            subprocess.run(["umount", "--lazy", mount], check=True)
        shutil.rmtree(self._folder)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it; by SIGKILL, its containers run on."""
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(60)
        (self._folder / "pid").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def engine(
    client: "docker.DockerClient", images: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnEngine]:
    """Its image is the one that the common engine built."""
    folder = Path(
        tempfile.mkdtemp(prefix="kit-engine-")
    )  # not below pytest's folder, which is closed to remapped users
    folder.chmod(0o755)
    bridge = Path("/sys/class/net/docker0")
    had_one = bridge.exists()
    engine = OwnEngine(folder)
    try:
        tags = [check_image(client, find_image("rehearsal", images)).tag]  # by content: nobody moves it
        with subprocess.Popen(["docker", "save", *tags], stdout=subprocess.PIPE) as save:
            load = ["docker", "--host", engine.url, "load", "--quiet"]
            subprocess.run(load, stdin=save.stdout, check=True, stdout=subprocess.DEVNULL)
        yield engine
        assert bridge.exists() == had_one
    finally:
        engine.remove()


@pytest.fixture
def stage(engine: OwnEngine, images: Path, tmp_path: Path) -> Iterator[Stage]:
    tmp_path.chmod(0o755)
    stage = Stage(engine.client, engine.url, images, tmp_path)
    yield stage
    assert stage.containers() == []


def test_an_engine_with_remapped_users_runs_it_as_the_caller(stage: Stage) -> None:
    done = stage.launch(acts("pass")).finish()
    assert (done.code, told_by(done.folder / "junit.xml")) == (0, GREEN), done.text
    assert {path.stat().st_uid for path in done.folder.rglob("*")} == {os.getuid()}


def test_an_engine_that_is_restarted_takes_the_container_with_it_and_no_verdict(
    stage: Stage, engine: OwnEngine
) -> None:
    launch = stage.in_flight()
    engine.end()
    engine.start()
    stage.client = engine.client
    done = launch.finish(90)
    assert (done.code, told_by(done.folder / "junit.xml")) == (5, IN_FLIGHT), done.text


def test_an_engine_that_is_gone_for_good_is_the_machines_fault_and_its_container_is_found_later(
    stage: Stage, engine: OwnEngine
) -> None:
    launch = stage.launch(acts("pass", "hang", "pass", case=60), engine_silence=2.0)
    launch.wait_for(CaseStarted, "hang")
    engine.end(signal.SIGKILL)
    done = launch.finish(90)
    assert done.code == 3, done.text
    assert told_by(done.folder / "junit.xml") == IN_FLIGHT | dict.fromkeys(
        ("0/1-hang", "0/2-pass", "1/0-pass"), "environment"
    )
    assert "stopped answering" in done.reason("kernels/null-0/1-hang")
    assert "docker rm -f" in done.text
    engine.start()
    stage.client = engine.client
    assert len(stage.containers()) == 1
    next_one = stage.launch(acts("pass"), "next").finish()
    assert (next_one.code, told_by(next_one.folder / "junit.xml")) == (0, GREEN), next_one.text
    assert "it was removed" in " ".join(next_one.result.warnings)
