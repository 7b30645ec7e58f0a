"""Launches a plan of the null subject as ``kit run`` launches a real one, in a process of its own: ``python -m tests.launcher JOB``.

The image is a real one too, with nothing in it but what the worker imports. It is built in seconds.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import psutil
from pydantic import Field

from kit.events import AnyEvent, EventReader
from kit.host.image_build import BuildOptions, build_image
from kit.host.lockfile import read_lock, write_lock
from kit.image import ImageDefinition, find_image
from kit.measurement import Record
from kit.plan import Plan
from tests.jobs import Outcome, outcome
from tests.tiny_wheels import make_definition

IMAGE = "rehearsal"
_PACKAGES = ("annotated-types", "psutil", "pydantic", "pydantic-core", "typing-extensions", "typing-inspection")


class Job(Record):
    """What to launch.

    Attributes:
        images: folder of image definitions. image: name of one.
        profile: of which everything but the container's limits is taken.
        container: keys of a profile's ``[container]`` that differ from profile cpu.
        clock_step: seconds by which the wall clock jumps when the worker has started.
        engine_silence: seconds for which an engine may be silent, where the test cannot wait for kit's own.
    """

    plan: Plan
    output: str
    images: str
    image: str = IMAGE
    profile: str = "cpu"
    runtime: str = "docker"
    container: dict[str, Any] = Field(default_factory=dict)
    clock_step: float = 0.0
    engine_silence: float | None = None


def image_definition(folder: Path, name: str = IMAGE) -> ImageDefinition:
    """The image of what the worker imports, with the wheels of the CPU image's lock."""
    pins = [pin for pin in read_lock(find_image("cpu")) if pin.name in _PACKAGES]
    definition = make_definition(
        folder,
        name=name,
        python="3.11",
        without_dependencies=[f"{pin.name}=={pin.version}" for pin in pins],
        expects={pin.name: pin.version for pin in pins},
    )
    write_lock(definition, pins)
    return definition


def build(client: "docker.DockerClient", folder: Path, base: str) -> ImageDefinition:
    """Define and build it."""
    definition = image_definition(folder)
    build_image(client, definition, BuildOptions(base=base), lambda text: None)
    return definition


class Launch:
    """A launcher in the background."""

    def __init__(self, job: Job, **options: Any) -> None:
        self.job = job
        self.folder = Path(job.output)
        self.begin = time.monotonic()
        environment = os.environ | options.pop("environment", {})
        self.process = subprocess.Popen(
            [*options.pop("prefix", ()), sys.executable, "-m", "tests.launcher", job.model_dump_json()],
            stdin=subprocess.DEVNULL,
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(__file__).parents[1],
            env=environment,
            **options,
        )
        self._reader = EventReader(self.folder / "events.jsonl")

    def wait_for(self, kind: type[AnyEvent], words: str = "", seconds: float = 60) -> AnyEvent:  # type: ignore[valid-type]
        """The first event of this kind, in a case whose id ends like this."""
        return self.wait_until(
            lambda event: isinstance(event, kind) and getattr(event, "case", "").endswith(words), seconds
        )

    def wait_until(self, wanted: Callable[[AnyEvent], bool], seconds: float = 60) -> AnyEvent:
        """The first event that is `wanted`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for event in self._reader.new():
                if wanted(event):
                    return event
            if self.process.poll() is not None:
                raise AssertionError(f"the launcher ended before that:\n{self.process.communicate()[0]}")
            time.sleep(0.02)
        self.process.kill()
        raise AssertionError(f"that event did not come:\n{self.process.communicate()[0]}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the launcher itself."""
        self.process.send_signal(number)

    def end(self, seconds: float = 60) -> tuple[int, str]:
        """Wait for its end; gives exit code and output. No process below it may be left."""
        below = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        try:
            text, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert [process for process in below if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []
        return self.process.returncode, text or ""

    def finish(self, seconds: float = 60) -> Outcome:
        """Wait for its end, and read the reports, which must be complete."""
        return outcome(self.folder, *self.end(seconds))


def main() -> None:
    """Launch one job as the command line does after it has checked its options."""
    job = Job.model_validate_json(sys.argv[1])
    offset = [0.0]
    real = time.time
    time.time = lambda: real() + offset[0]

    from kit.cli import main as kit_main
    from kit.cli import run as cli
    from kit.cli.progress import Progress, SafeConsole
    from kit.events import SessionStarted
    from kit.host import docker_runtime
    from kit.host.run import Prepared, with_inputs
    from kit.profile import ContainerSettings, find_profile
    from kit.results.model import Mode
    from kit.waiver import Waivers

    if job.engine_silence is not None:
        docker_runtime._SILENCE_SECONDS = job.engine_silence
        docker_runtime._REMOVE_ATTEMPTS = 2
    plain = Progress.event

    def event(self: Progress, event: AnyEvent) -> None:
        if isinstance(event, SessionStarted):
            offset[0] = job.clock_step
        plain(self, event)

    Progress.event = event  # type: ignore[method-assign]
    profile = find_profile(job.profile)
    settings = profile.container.model_dump() | {"memory": "512MiB", "shm": "64MiB", "pids": 256} | job.container
    profile = profile.model_copy(
        update={"container": ContainerSettings.model_validate_json(json.dumps(settings)), "mandatory": ("kernels",)}
    )
    waivers = Waivers()
    plan = with_inputs(job.plan.model_copy(update={"profile": profile.name}), profile, waivers, Mode.CI)
    image = find_image(job.image, Path(job.images))
    prepared = Prepared(profile, image, Mode.CI, job.runtime, plan, waivers, Path(job.output))  # type: ignore[arg-type]

    def launch() -> None:
        raise SystemExit(cli.carry_out(prepared, SafeConsole()))

    import kit.cli

    kit.cli.app = launch  # type: ignore[assignment]
    kit_main()


if __name__ == "__main__":
    main()
