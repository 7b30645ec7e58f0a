"""A real engine and a local base image, made by the project's own script where they are missing."""

import subprocess
from pathlib import Path

import docker
import pytest

from kit.host.docker_runtime import connect
from tests.launcher import build

BASE = "kit-base:bookworm"
SCRIPT = Path(__file__).parents[2] / "scripts" / "docker-engine.sh"


@pytest.fixture(scope="session")
def base() -> str:
    """A local base image with Python 3.11. Where no engine can be had, the tests fail and say why."""
    done = subprocess.run([SCRIPT, "base", BASE], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"no engine or no base image: {done.stderr.strip()}"
    return BASE


@pytest.fixture(scope="session")
def client(base: str) -> docker.DockerClient:
    """A client of that engine, patient enough for a busy machine."""
    client = connect()
    client.api.timeout = 300
    return client


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory, client: docker.DockerClient, base: str) -> Path:
    """The definition of an image with nothing in it but what the worker imports, which is built."""
    folder = tmp_path_factory.mktemp("images")
    build(client, folder, base)
    return folder
