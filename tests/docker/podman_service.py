"""Podman's service, of root or of another user, with an image that Docker has built."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import docker


@contextmanager
def podman_service(
    folder: Path, tag: str, prefix: Sequence[str] = (), environment: dict[str, str] | None = None
) -> Iterator[tuple["docker.DockerClient", str]]:
    """Run it with its socket in `folder`; gives a client and the socket's URL. The image is removed at the end."""
    socket = folder / "podman.sock"
    podman = [*prefix, "podman"]
    url = f"unix://{socket}"
    service = subprocess.Popen([*podman, "system", "service", "--time=0", url], cwd=folder, env=environment)
    try:
        with subprocess.Popen(["docker", "save", tag], stdout=subprocess.PIPE) as save:
            load = [*podman, "load", "--quiet"]
            subprocess.run(load, stdin=save.stdout, check=True, stdout=subprocess.DEVNULL, cwd=folder, env=environment)
        deadline = time.monotonic() + 60
        while not socket.exists():
            assert service.poll() is None and time.monotonic() < deadline, "podman's service does not start"
            time.sleep(0.05)
        client = docker.DockerClient(base_url=url, timeout=60)
        yield client, url
        client.images.remove(f"localhost/{tag}", force=True)
    finally:
        service.terminate()
        service.wait(60)
