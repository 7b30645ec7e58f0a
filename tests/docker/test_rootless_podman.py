"""Podman of an ordinary user: what a container writes is the user's, its end is told as anywhere else, and nothing is left."""

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import psutil
import pytest

from kit.events import CaseStarted
from kit.host.container import ContainerSpec, container_spec, container_user
from kit.host.devices import KEEP_GROUPS, ContainerDevices
from kit.host.docker_runtime import DockerRuntime
from kit.host.engine import engine_facts
from kit.host.image_store import check_image
from kit.image import find_image
from kit.profile import find_profile
from tests.docker.launch_stage import GREEN, IN_FLIGHT, Engine, Stage, acts, run_to_end, told_by
from tests.docker.podman_service import podman_service
from tests.launcher import IMAGE, Launch

NEEDED = ("podman", "catatonit", "newuidmap", "useradd", "userdel", "setpriv")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
pytestmark = [
    pytest.mark.docker,
    pytest.mark.nightly,
    pytest.mark.skipif(
        os.getuid() != 0 or bool(MISSING), reason=f"needs root, to make a user, and {', '.join(MISSING or NEEDED)}"
    ),
]
READS = "+dac_read_search"  # this Python may lie where only root can read
GROUP = 54322


def as_user(user: pwd.struct_passwd, *more: str) -> list[str]:
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", f"--groups={GROUP}", *more]


@pytest.fixture(scope="module")
def user() -> Iterator[pwd.struct_passwd]:
    """A user with a home and ranges of user ids of its own. At the end none of its processes is left, but Podman's own."""
    name = f"kit-{uuid.uuid4().hex[:8]}"
    home = tempfile.mkdtemp(prefix="kit-home-")  # not below pytest's folder, which is closed to other users
    subprocess.run(["useradd", "--home-dir", home, "--shell", "/bin/sh", name], check=True)
    user = pwd.getpwnam(name)
    try:
        os.chown(home, user.pw_uid, user.pw_gid)
        yield user
    finally:
        for process in processes_of(user):  # podman leaves one that holds its namespace
            process.kill()
        subprocess.run(["userdel", "--force", name], check=True)
        shutil.rmtree(home, ignore_errors=True)


def processes_of(user: pwd.struct_passwd) -> list[psutil.Process]:
    """Those that live; what has ended may wait to be reaped."""
    return [
        process
        for process in psutil.process_iter(["uids", "status", "cmdline"])
        if process.info["uids"] and process.info["uids"].real == user.pw_uid
        if process.info["status"] != psutil.STATUS_ZOMBIE
    ]


@pytest.fixture(scope="module")
def engine(user: pwd.struct_passwd, client: "docker.DockerClient", images: Path) -> Iterator[Engine]:
    """The user's own podman service, which has the image that Docker built."""
    home = Path(user.pw_dir)
    run = home / "run"
    run.mkdir(mode=0o700)
    os.chown(run, user.pw_uid, user.pw_gid)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "USER": user.pw_name, "XDG_RUNTIME_DIR": str(run)}
    tag = check_image(client, find_image(IMAGE, images)).tag  # by content: nobody moves it
    with podman_service(run, tag, as_user(user), environment) as (engine, url):
        yield Engine(engine, url)


@pytest.fixture
def stage(user: pwd.struct_passwd, engine: Engine, images: Path) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(dir=user.pw_dir))
    os.chown(folder, user.pw_uid, user.pw_gid)
    stage = Stage(engine.client, engine.url, images, folder)
    yield stage
    assert stage.containers() == []
    lines = [" ".join(process.info["cmdline"] or ()) for process in processes_of(user)]
    assert [line for line in lines if "kit.worker" in line] == []


def launched(stage: Stage, user: pwd.struct_passwd, *names: str) -> Launch:
    prefix = as_user(user, f"--inh-caps={READS}", f"--ambient-caps={READS}")
    environment = {"HOME": user.pw_dir, "KIT_CACHE": f"{user.pw_dir}/cache"}
    return stage.launch(acts(*names, case=60), environment=environment, process={"prefix": prefix})


def test_what_it_writes_is_the_users(stage: Stage, user: pwd.struct_passwd) -> None:
    assert engine_facts(stage.client).rootless
    done = launched(stage, user, "pass").finish()
    assert done.code == 0, done.text
    assert told_by(done.folder / "junit.xml") == GREEN
    assert {path.stat().st_uid for path in done.folder.rglob("*")} == {user.pw_uid}


def test_a_killed_container_is_told(stage: Stage, user: pwd.struct_passwd) -> None:
    launch = launched(stage, user, "pass", "hang", "pass")
    launch.wait_for(CaseStarted, "hang")
    stage.container().kill()
    done = launch.finish()
    assert done.code == 5, done.text
    assert told_by(done.folder / "junit.xml") == IN_FLIGHT


@pytest.mark.parametrize("groups", [(), (KEEP_GROUPS,)], ids=["without", "kept"])
def test_it_reads_what_its_groups_may_read_only_where_they_are_kept(
    stage: Stage, user: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch, groups: tuple[str, ...]
) -> None:
    """As the nodes of GPUs are open to a group of the host, which has no number inside."""
    facts = engine_facts(stage.client)
    if groups and not facts.keeps_groups:
        pytest.skip(f"podman {facts.version} cannot keep groups: that takes podman 5.1 with crun")
    run, assets = stage.folder / "run", stage.folder / "assets"
    for folder in (run / "logs", assets):
        folder.mkdir(parents=True)
    for path in (run, run / "logs", assets):
        os.chown(path, user.pw_uid, user.pw_gid)
    (assets / "node").write_text("open to a group\n")
    (assets / "node").chmod(0o640)
    os.chown(assets / "node", 0, GROUP)
    monkeypatch.setattr(ContainerSpec, "command", ["sh", "-c", "cat /kit/assets/node || echo closed"])
    monkeypatch.setattr(os, "getuid", lambda: user.pw_uid)
    image = check_image(stage.client, find_image(IMAGE, stage.images)).id
    spec = container_spec(
        find_profile("cpu"),
        image,
        stage.folder.name,
        run,
        assets,
        ContainerDevices(groups=groups),
        container_user(True),
    )
    runtime = DockerRuntime(stage.client, spec, facts)
    run_to_end(runtime)
    said = (run / "logs" / "container.log").read_text().splitlines()[-1]
    assert said == ("open to a group" if groups else "closed")
