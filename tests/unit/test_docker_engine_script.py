"""scripts/docker-engine.sh on machines that are played by small commands in front of the real ones."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "docker-engine.sh"
TOOLS = ["bash", "cat", "chmod", "env", "mktemp", "rm", "sed", "setsid", "sleep", "tail", "touch"]
Machine = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Runs the script where only `TOOLS` and the given commands exist; what they do is appended to ``calls``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = next(path for path in map(Path, ("/usr/bin", "/bin")) if (path / tool).exists())
        (folder / tool).symlink_to(found / tool)

    def command(name: str, body: str) -> None:
        path = folder / name
        path.write_text(f'#!/bin/bash\nif [ {name} != docker ]; then echo {name} "$@" >>{tmp_path}/calls; fi\n{body}\n')
        path.chmod(0o755)

    def run(*arguments: str, **commands: str) -> subprocess.CompletedProcess[str]:
        for name, body in {"id": "echo 0", "systemctl": "exit 1", **commands}.items():
            command(name.replace("_", "-"), body.format(up=tmp_path / "up", bin=folder))
        environment = {
            "PATH": str(folder),
            "KIT_ENGINE_WAIT": "3",
            "KIT_ENGINE_LOG": str(tmp_path / "log"),
            "TMPDIR": str(tmp_path),
        }
        return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=60, env=environment)

    return run


CLIENT = "[ -e {up} ] && echo 20.10"
INSTALLS = "[ $1 = install ] && {{ echo 'touch {up}' >{bin}/dockerd; chmod +x {bin}/dockerd; }}; exit 0"


def calls(tmp_path: Path) -> list[str]:
    path = tmp_path / "calls"
    return (
        [line for line in path.read_text().splitlines() if line.startswith(("apt-get", "dockerd"))]
        if path.exists()
        else []
    )


def test_it_installs_and_starts_what_is_missing_and_then_does_nothing(machine: Machine, tmp_path: Path) -> None:
    done = machine(docker=CLIENT, apt_get=INSTALLS)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in calls(tmp_path)] == [["apt-get", "update"], ["apt-get", "install"]]
    assert "docker.io" in calls(tmp_path)[1]
    assert "engine 20.10 answers" in done.stdout.splitlines()[-1]
    (tmp_path / "calls").unlink()
    assert machine(docker=CLIENT).returncode == 0
    assert calls(tmp_path) == []


def test_it_leaves_an_engine_that_answers_alone(machine: Machine, tmp_path: Path) -> None:
    done = machine(docker="echo 27.0", dockerd="exit 9", apt_get="exit 9", id="echo 1000")
    assert (done.returncode, calls(tmp_path)) == (0, [])


@pytest.mark.parametrize(
    ("commands", "told"),
    [
        ({"id": "[ $1 = -u ] && echo 1000 || echo lab"}, "needs root, and this is user lab"),
        ({}, "needs apt-get, and this machine has none"),
        ({"apt_get": "echo no route; exit 100"}, "no route"),
        ({"docker": CLIENT, "dockerd": "exit 1", "apt_get": "exit 0"}, "the engine does not answer"),
    ],
)
def test_it_says_loudly_when_it_cannot(machine: Machine, commands: dict[str, str], told: str) -> None:
    done = machine(**commands)
    assert done.returncode == 3
    assert told in done.stderr
    assert "*** docker-engine:" in done.stderr


@pytest.mark.parametrize("arguments", [("base",), ("base", ""), ("frob",), ("base", "a", "b")])
def test_wrong_arguments_are_told_the_usage(machine: Machine, arguments: tuple[str, ...]) -> None:
    done = machine(*arguments)
    assert done.returncode == 2
    assert "scripts/docker-engine.sh base NAME" in done.stderr


def test_a_base_that_is_there_is_not_made_again(machine: Machine, tmp_path: Path) -> None:
    done = machine("base", "kit-base:x", docker="echo 27.0", debootstrap="exit 9")
    assert done.returncode == 0
    assert "image kit-base:x is there" in done.stdout
