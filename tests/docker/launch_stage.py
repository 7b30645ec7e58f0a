"""Where a launch fault is provoked: an engine, an image, a folder, and launches whose containers can be reached."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
from lxml import etree

from kit.check_spec import NullCheck
from kit.events import CaseStarted
from kit.host.container import RUN_LABEL
from kit.host.docker_runtime import DockerRuntime
from kit.host.planner import new_run_id
from kit.plan import Plan
from tests.launcher import Job, Launch
from tests.rehearsal import null_plan

PASS, HANG = NullCheck(act="pass"), NullCheck(act="hang")
GREEN = {"0/0-pass": "passed", "1/0-pass": "passed"}
IN_FLIGHT = {"0/0-pass": "passed", "0/1-hang": "crashed", "0/2-pass": "missing", "1/0-pass": "missing"}
STOPPED = IN_FLIGHT | {"0/1-hang": "missing"}
CRASH = {"0/0-pass": "passed", "0/2-pass": "missing", "1/0-pass": "passed"}
REFUSED = {"0/0-pass": "environment", "1/0-pass": "environment"}


def acts(*names: str, **options: Any) -> Plan:
    """One session with these acts, and a second one with a pass."""
    return null_plan([NullCheck(act=name) for name in names], [PASS], **options)  # type: ignore[arg-type]


def told_by(junit: Path) -> dict[str, str]:
    """Status of each case by session and aspect, from JUnit alone."""
    told = {}
    for node in etree.parse(str(junit)).iter("testcase"):
        kinds = [child.get("type") for child in node if child.tag in ("failure", "error", "skipped")]
        told[f"{node.get('classname').removeprefix('kernels.null-')}/{node.get('name')}"] = (kinds or ["passed"])[0]
    return told


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A disk in memory at `folder`. Another process takes it away again, also where this one is killed."""
    folder.mkdir()
    steps = 'mount -t tmpfs -o "size=$1" kit-test "$2" && echo mounted && cat; umount --lazy "$2"'
    holder = subprocess.Popen(
        ["sh", "-c", steps, "sh", size, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert holder.stdin is not None and holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"mounted\n"
        yield
    finally:
        holder.stdin.close()
        assert holder.wait(60) == 0
        holder.stdout.close()


@dataclass
class Engine:
    """An engine that answers at `url` and has the image."""

    client: "docker.DockerClient"
    url: str


@dataclass
class Stage:
    """Where a fault is provoked: an engine that answers at `url`, the image's definition, and an empty folder."""

    client: "docker.DockerClient"
    url: str
    images: Path
    folder: Path
    runs: list[str] = field(default_factory=list)

    def launch(
        self, plan: Plan, output: str = "out", environment: dict[str, str] | None = None, **options: Any
    ) -> Launch:
        """Launch `plan` in the background; options of `Job`, and those of `subprocess.Popen` below ``process``."""
        run_id = new_run_id()
        self.runs.append(run_id)
        process = options.pop("process", {})
        job = Job(
            plan=plan.model_copy(update={"run_id": run_id}),
            output=str(self.folder / output),
            images=str(options.pop("images", self.images)),
            **options,
        )
        return Launch(job, environment={"DOCKER_HOST": self.url} | (environment or {}), **process)

    def in_flight(self, **options: Any) -> Launch:
        """A launch that hangs in its second case."""
        launch = self.launch(acts("pass", "hang", "pass", case=60, **options))
        launch.wait_for(CaseStarted, "hang")
        return launch

    def containers(self) -> list[Any]:
        """The containers of the launches of this stage."""
        found = [self.client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={run}"}) for run in self.runs]
        return [container for some in found for container in some]

    def container(self) -> Any:
        """The only one."""
        (one,) = self.containers()
        return one


def run_to_end(runtime: DockerRuntime) -> None:
    """Start the container, wait for its end, and leave nothing of it."""
    try:
        runtime.start()
        deadline = time.monotonic() + 60
        while runtime.ended() is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        runtime.stop()
