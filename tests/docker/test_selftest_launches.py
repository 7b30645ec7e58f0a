"""The self-test's faults of containers: each is caught as what it is, on a real engine, and nothing else passes for it."""

import signal
import time
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from kit.faults import containers
from kit.faults.container_catalogue import CONTAINER_FAULTS, LAUNCHES
from kit.host.container import RUN_LABEL
from kit.host.run import Request, prepare
from kit.host.supervisor import StopRequest
from kit.image import find_image
from kit.selftest import launches
from kit.selftest.launches import Launcher
from tests.launcher import IMAGE

pytestmark = pytest.mark.docker
BY_NAME = {kind.name: kind for kind in CONTAINER_FAULTS}


class Lines:
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def line(self, text: str) -> None:
        self.told.append(text)

    def event(self, event: object) -> None:
        raise AssertionError("a launch tells one line")


@pytest.fixture
def launcher(client: "docker.DockerClient", images: Path, tmp_path: Path) -> Launcher:
    prepared = replace(prepare(Request(profile="cpu")), image=find_image(IMAGE, images))
    return Launcher(client, prepared, tmp_path / "launches", StopRequest(), Lines())


def left(launcher: Launcher) -> list[object]:
    """Containers of its launches."""
    labels = {"label": RUN_LABEL}
    names = [container.labels[RUN_LABEL] for container in launcher.client.containers.list(all=True, filters=labels)]
    plans = " ".join(path.read_text() for path in launcher.folder.rglob("plan.json"))
    return [name for name in names if name in plans]


@pytest.mark.timeout(300)
def test_every_fault_is_caught_and_a_launch_without_one_is_green(launcher: Launcher) -> None:
    assert LAUNCHES.keys() == BY_NAME.keys()
    came = launcher.launched(CONTAINER_FAULTS)
    assert {outcome.name: outcome.missing for outcome in came.outcomes if outcome.verdict != "caught"} == {}
    assert [outcome.name for outcome in came.outcomes] == list(BY_NAME)
    assert (came.quiet, came.alarms) == (4, ())
    assert left(launcher) == []
    assert all((launcher.folder / name / "junit.xml").exists() for name in ("fault-free", *BY_NAME))
    assert isinstance(launcher.display, Lines)
    assert [line.split(": ")[:2] for line in launcher.display.told] == [
        [name, f"caught by container/one/1-{LAUNCHES[name].act}"] for name in BY_NAME
    ]


def test_a_fault_that_is_told_as_another_one_is_not_caught(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that is stopped where it should have been killed; one in which nothing is done; one whose act fails."""
    monkeypatch.setattr(launches, "_CASE_SECONDS", 2.0)
    monkeypatch.setitem(containers.PROVOKED, "container-killed", containers.PROVOKED["container-stopped"])
    monkeypatch.delitem(containers.PROVOKED, "container-removed")
    monkeypatch.setitem(
        containers.PROVOKED, "container-worker-killed", lambda container: containers.kill_inside(container, "nobody")
    )
    names = ("container-killed", "container-removed", "container-worker-killed")
    came = launcher.launched([BY_NAME[name] for name in names])
    assert [outcome.verdict for outcome in came.outcomes] == ["not caught"] * 3
    first = {outcome.name: " ".join(outcome.missing) for outcome in came.outcomes}
    assert (
        "the reason does not say 'SIGKILL': the worker crashed: container: killed by SIGTERM"
        in first["container-killed"]
    )
    assert "container/one/1-hang is timeout, not crashed" in first["container-removed"]
    assert "no process 'nobody' could be killed inside the container" in first["container-worker-killed"]
    assert left(launcher) == []


def test_a_red_launch_without_a_fault_is_an_alarm(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(containers.PROVOKED, "fault-free", containers.PROVOKED["container-killed"])
    monkeypatch.setattr(launches, "FAULT_FREE", replace(launches.FAULT_FREE, act="hang"))
    came = launcher.launched([])
    assert came.quiet == 0
    assert "launch without a fault: container/one/1-hang is crashed, not passed" in came.alarms[0]


def test_a_stop_ends_the_launch_in_flight_which_answers_nothing(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(container: object) -> None:
        launcher.stop.signal = signal.SIGINT

    monkeypatch.setitem(containers.PROVOKED, "container-removed", interrupted)
    begin = time.monotonic()
    came = launcher.launched([BY_NAME[name] for name in ("container-killed", "container-removed", "container-stopped")])
    assert time.monotonic() - begin < 60  # the case would hang for 100 s
    assert [outcome.name for outcome in came.outcomes] == ["container-killed"]
    assert (came.quiet, came.alarms) == (4, ())
    assert left(launcher) == []
    assert not (launcher.folder / "container-stopped").exists()


def test_once_it_is_stopped_nothing_more_is_launched(launcher: Launcher) -> None:
    launcher.stop.signal = signal.SIGINT
    came = launcher.launched(CONTAINER_FAULTS)
    assert (came.outcomes, came.quiet, came.alarms) == ((), 0, ())
