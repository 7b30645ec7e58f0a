"""What provokes the faults of containers, through the API of the engine that runs them (`kit.faults.container_catalogue`)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kit.errors import EnvironmentFault

if TYPE_CHECKING:
    from docker.models.containers import Container

WORKER = "kit.worker /kit/run"
SESSION = "kit.worker.session"

_KILL = """
import os, signal, sys
from pathlib import Path

found = []
for process in Path("/proc").iterdir():
    if process.name.isdecimal() and int(process.name) != os.getpid():
        try:
            command = (process / "cmdline").read_bytes().replace(b"\\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if sys.argv[1] in command:
            found.append(int(process.name))
if not found:
    sys.exit("no such process")
os.kill(max(found), signal.SIGKILL)
"""


def kill_inside(container: "Container", words: str) -> None:
    """Kill the youngest process of a container whose command line has these words, from inside: no rights outside are needed.

    Raises:
        EnvironmentFault: there is none, or it cannot be killed.
    """
    code, output = container.exec_run(["python", "-c", _KILL, words])
    told = output.decode(errors="replace").strip()
    if code and told:  # without a word, it died with the container, whose end was the worker's
        raise EnvironmentFault(f"no process '{words}' could be killed inside the container: {told}", "see its log")


PROVOKED: Final[dict[str, Callable[["Container"], None]]] = {
    "container-killed": lambda container: container.kill(),
    "container-stopped": lambda container: container.kill("SIGTERM"),
    "container-removed": lambda container: container.remove(force=True),
    "container-paused": lambda container: container.pause(),
    "container-worker-killed": lambda container: kill_inside(container, WORKER),
    "container-session-killed": lambda container: kill_inside(container, SESSION),
}
"""By fault, what is done to the container while a case is in flight; of the others, one is done before, and one by the session."""
