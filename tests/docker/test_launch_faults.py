"""Whatever goes wrong around a worker: the right exit code, a complete junit.xml, and nothing left; on Docker and on Podman.

Most of a launch is waiting, so a few run at once; each test waits for its own.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from kit.host.image_store import check_image
from kit.image import find_image
from tests.docker.launch_faults import FAULTS, Fault
from tests.docker.launch_stage import Engine, Stage, told_by
from tests.docker.podman_service import podman_service
from tests.jobs import Outcome

pytestmark = pytest.mark.docker
AT_ONCE = 3
PODMAN_ALWAYS = {"container-killed", "container-paused", "out-of-memory", "image-not-built"}
"""One of each kind: the container, the engine's own doing, the kernel's, the image. The others on Podman are nightly."""


@dataclass
class Provoked:
    """What came of a fault, which containers were left, and how long it took."""

    done: Outcome | int
    left: list[str]
    seconds: float


@pytest.fixture(scope="module")
def docker_engine(client: "docker.DockerClient", images: Path) -> Engine:
    return Engine(client, os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))


@pytest.fixture(scope="module")
def podman_engine(
    client: "docker.DockerClient", images: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """Podman's service with the image that Docker built."""
    if os.getuid() != 0 or shutil.which("podman") is None:
        pytest.skip("needs root and podman")
    tag = check_image(client, find_image("rehearsal", images)).tag  # by content: nobody moves it
    with podman_service(tmp_path_factory.mktemp("podman"), tag) as (engine, url):
        yield Engine(engine, url)


def provoke(fault: Fault, engine: Engine, images: Path, folder: Path) -> Provoked:
    begin = time.monotonic()
    folder.chmod(0o755)
    stage = Stage(engine.client, engine.url, images, folder)
    try:
        done = fault.provoke(stage)
    finally:
        left = stage.containers()
        for container in left:
            container.remove(force=True)
    return Provoked(done, [str(container.name) for container in left], time.monotonic() - begin)


class Rehearsals:
    """All selected faults on one engine: begun together, asked for one by one. What must be alone begins when it is asked for."""

    def __init__(self, faults: list[Fault], begin: Callable[[Fault], Future[Provoked]]) -> None:
        self._begin = begin
        self._begun = {fault.name: begin(fault) for fault in faults if not fault.alone}

    def of(self, fault: Fault) -> Provoked:
        """What came of a fault."""
        if fault.alone:
            wait(self._begun.values())
            return self._begin(fault).result()
        return self._begun[fault.name].result()


@contextmanager
def rehearsals(
    faults: list[Fault], engine: Engine, images: Path, folders: pytest.TempPathFactory
) -> Iterator[Rehearsals]:
    """At the end none of them runs any more, whether it was asked for or not."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield Rehearsals(faults, lambda fault: pool.submit(provoke, fault, engine, images, folders.mktemp(fault.name)))
    finally:
        pool.shutdown(cancel_futures=True)


def selected(request: pytest.FixtureRequest, test: str) -> list[Fault]:
    items = [item for item in request.session.items if getattr(item, "originalname", "") == test]
    return [item.callspec.params["fault"] for item in items]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def on_docker(
    request: pytest.FixtureRequest, docker_engine: Engine, images: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rehearsals]:
    with rehearsals(selected(request, "test_on_docker"), docker_engine, images, tmp_path_factory) as begun:
        yield begun


@pytest.fixture(scope="module")
def on_podman(
    request: pytest.FixtureRequest, podman_engine: Engine, images: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rehearsals]:
    with rehearsals(selected(request, "test_on_podman"), podman_engine, images, tmp_path_factory) as begun:
        yield begun


def check(fault: Fault, rehearsals: Rehearsals) -> None:
    if fault.root and os.getuid() != 0:
        pytest.skip("needs root")
    came = rehearsals.of(fault)
    print(f"\n{fault.name}: {came.seconds:.1f} s")
    assert came.left == []
    if fault.cases is None:
        assert came.done == fault.code
        return
    assert isinstance(came.done, Outcome)
    assert came.done.code == fault.code, came.done.text
    told = told_by(came.done.folder / "junit.xml")
    assert {name: told[name] for name in fault.cases} == fault.cases
    result = came.done.result
    reasons = [case.reason for case in result.cases] + [problem.text for problem in result.problems]
    assert fault.words in "\n".join([*reasons, *result.warnings])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_on_docker(on_docker: Rehearsals, fault: Fault) -> None:
    check(fault, on_docker)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=() if fault.name in PODMAN_ALWAYS else pytest.mark.nightly, id=fault.name)
        for fault in FAULTS
        if not fault.another_user
    ],
)
def test_on_podman(on_podman: Rehearsals, fault: Fault) -> None:
    check(fault, on_podman)
