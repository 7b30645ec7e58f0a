"""Podman's service, of root or of another user, with storage of its own and an image that Docker has built."""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import docker

_START_SECONDS = 120
_HYBRID = Path("/sys/fs/cgroup/unified").is_dir()


def _settings() -> str:
    """Podman's containers.conf: locks in files, since those of all others on this machine are in one shared memory.

    crun refuses a machine that has both kinds of cgroups.
    """
    return '[engine]\nlock_type = "file"\n' + ('runtime = "runc"\n' if _HYBRID else "")


@contextmanager
def podman_service(
    folder: Path, tag: str, prefix: Sequence[str] = (), environment: dict[str, str] | None = None
) -> Iterator[tuple["docker.DockerClient", str]]:
    """Run it with its socket, images and containers in `folder`; gives a client and the socket's URL.

    What podman has on this machine otherwise is neither seen nor touched.

    Args:
        folder: belongs to the user of the service; a socket's path may have 107 bytes.
        prefix: command line that comes before podman's, such as one that changes the user.
        environment: of that user; None for this process's own.
    """
    environment = dict(os.environ if environment is None else environment)
    settings = folder / "containers.conf"
    settings.write_text(_settings())
    settings.chmod(0o644)
    environment["CONTAINERS_CONF"] = str(settings)
    places = {"root": "storage", "runroot": "run", "tmpdir": "tmp"}
    podman = [*prefix, "podman", *(f"--{option}={folder / place}" for option, place in places.items())]
    socket = folder / "podman.sock"
    url = f"unix://{socket}"
    with subprocess.Popen(["docker", "save", tag], stdout=subprocess.PIPE) as save:
        load = [*podman, "load", "--quiet"]
        subprocess.run(load, stdin=save.stdout, check=True, stdout=subprocess.DEVNULL, cwd=folder, env=environment)
    service = subprocess.Popen([*podman, "system", "service", "--time=0", url], cwd=folder, env=environment)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not socket.exists():
            assert service.poll() is None and time.monotonic() < deadline, "podman's service does not start"
            time.sleep(0.05)
        yield docker.DockerClient(base_url=url, timeout=60), url
    finally:
        service.terminate()
        service.wait(60)
        reset = [*podman, "system", "reset", "--force"]
        subprocess.run(reset, check=True, capture_output=True, cwd=folder, env=environment, timeout=120)
