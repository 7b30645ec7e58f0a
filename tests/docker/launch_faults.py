"""Every way in which a launch can go wrong around a worker, and what must come of it: one table for all engines.

A fault is provoked on a real engine with a plan of the null subject; how it is provoked is a function of the `Stage`.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.check_spec import NullCheck
from kit.events import CaseStarted
from kit.faults.containers import PROVOKED
from kit.host.image_store import check_image
from kit.host.planner import new_run_id
from kit.image import find_image
from kit.plan import NullSession
from tests.docker.launch_stage import CRASH, GREEN, IN_FLIGHT, PASS, REFUSED, STOPPED, Stage, acts, small_disk
from tests.jobs import Outcome, outcome
from tests.launcher import IMAGE, Job, Launch, image_definition
from tests.rehearsal import null_plan

ODD = "Ergebnis=日本 'a'\\b:$c"
Provoke = Callable[[Stage], Outcome | int]
"""Gives the exit code alone where there are no reports."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and what must come of it.

    Attributes:
        cases: what junit.xml tells of these cases, by session and aspect; None where no report can be written.
        words: what the output or a reason must say.
        root: needs root, to mount, or to be another user.
        alone: what another launch does at the same time would change it.
        another_user: kit runs as another user than the engine's, which Docker's group allows. Podman has an engine for each user
            instead (test_rootless_podman.py).
    """

    name: str
    provoke: Provoke
    code: int
    cases: dict[str, str] | None
    words: str = ""
    root: bool = False
    alone: bool = False
    another_user: bool = False


def _acts(*names: str, **options: Any) -> Provoke:
    """A session that does something by itself."""
    return lambda stage: stage.launch(acts(*names, **options)).finish()


def _to_container(fault: str, **options: Any) -> Provoke:
    """What the self-test's fault does to the container, while a case is in flight."""

    def provoke(stage: Stage) -> Outcome:
        launch = stage.in_flight(**options)
        PROVOKED[fault](stage.container())
        return launch.finish()

    return provoke


def _signal(number: signal.Signals) -> Provoke:
    def provoke(stage: Stage) -> Outcome:
        launch = stage.in_flight()
        launch.signal(number)
        return launch.finish(30)

    return provoke


def _kit_killed(stage: Stage) -> Outcome:
    """kit itself dies by SIGKILL: its container runs on until the next start, which ends it and runs as if nothing had been."""
    launch = stage.in_flight()
    launch.signal(signal.SIGKILL)
    launch.end()
    left = stage.container()
    assert left.status == "running"
    done = stage.launch(acts("pass"), "next").finish()
    assert f"container {left.name} (running)" in done.text
    assert any("it was removed" in warning for warning in done.result.warnings)
    report = subprocess.run(
        [sys.executable, "-m", "kit", "report", str(launch.folder)], capture_output=True, text=True, timeout=60
    )
    assert report.returncode == 0, report.stderr
    assert (launch.folder / "junit.xml").exists()
    return done


def _kit_alive(stage: Stage) -> Outcome:
    """A run beside another one that is in flight touches nothing of it."""
    other = stage.in_flight()
    done = stage.launch(acts("pass"), "beside").finish()
    assert other.process.poll() is None
    other.signal(signal.SIGTERM)
    assert other.finish(30).code == 130
    return done


def _two_at_once(stage: Stage) -> Outcome:
    first, second = (stage.launch(acts("pass", "sleep"), name) for name in ("one", "two"))
    done = second.finish()
    assert first.finish().code == 0
    return done


def _one_folder(stage: Stage) -> int:
    """A second run into the folder of one that is in flight is refused; the first goes on."""
    first = stage.in_flight()
    code, text = stage.launch(acts("pass")).end()
    assert "is not empty" in text
    first.signal(signal.SIGTERM)
    assert first.finish(30).code == 130
    return code


def _unheard(stage: Stage) -> Outcome:
    launch = stage.launch(acts("pass"))
    assert launch.process.stdout is not None
    launch.process.stdout.close()
    launch.process.stdout = None
    return launch.finish()


def _clock(step: float) -> Provoke:
    """The wall clock jumps in mid-run. No duration is negative, and the run's day is that of its start."""

    def provoke(stage: Stage) -> Outcome:
        before = time.time()
        done = stage.launch(acts("pass"), clock_step=step).finish()
        assert before - 1 <= done.result.started <= done.result.finished <= time.time() + 1
        assert all((case.seconds or 0) >= 0 for case in done.result.cases)
        return done

    return provoke


def _same_name(stage: Stage) -> Outcome:
    """A container of that name is there already, and is not kit's: it is left alone."""
    plan = acts("pass")
    run_id = new_run_id()
    image = check_image(stage.client, find_image(IMAGE, stage.images)).id
    other = stage.client.containers.create(image, ["true"], name=f"kit-{run_id}", network_mode="none")
    try:
        job = Job(
            plan=plan.model_copy(update={"run_id": run_id}), output=str(stage.folder / "out"), images=str(stage.images)
        )
        return Launch(job, environment={"DOCKER_HOST": stage.url}).finish()
    finally:
        other.remove(force=True)


def _no_engine(stage: Stage) -> Outcome:
    return stage.launch(acts("pass"), environment={"DOCKER_HOST": f"unix://{stage.folder}/none.sock"}).finish()


def _not_built(stage: Stage) -> Outcome:
    image_definition(stage.folder / "images", "absent")
    return stage.launch(acts("pass"), images=stage.folder / "images", image="absent").finish()


def _refused_then_built(stage: Stage) -> Outcome:
    """The folder of a refused run is taken by the next one."""
    assert _not_built(stage).code == 4
    return stage.launch(acts("pass")).finish()


def _full_disk(size: str, *names: str) -> Provoke:
    def provoke(stage: Stage) -> Outcome | int:
        with small_disk(stage.folder / "disk", size):
            launch = stage.launch(acts(*names), "disk/out")
            code, text = launch.end()
            if not (launch.folder / "junit.xml").exists():
                return code
            return outcome(shutil.copytree(launch.folder, stage.folder / "kept"), code, text)

    return provoke


def _folder_of_another(stage: Stage) -> Outcome:
    (stage.folder / "out").mkdir()
    os.chown(stage.folder / "out", 65534, 65534)
    return stage.launch(acts("pass")).finish()


def _cache(path: str) -> Provoke:
    return lambda stage: stage.launch(acts("pass"), environment={"KIT_CACHE": path}).finish()


def _folder_gone(stage: Stage) -> int:
    launch = stage.in_flight()
    shutil.rmtree(launch.folder)
    launch.signal(signal.SIGTERM)
    return launch.end()[0]


def _damaged_stream(stage: Stage) -> Outcome:
    launch = stage.launch(null_plan([PASS, NullCheck(act="sleep", seconds=1.0)]))
    launch.wait_for(CaseStarted, "sleep")
    with (launch.folder / "events.jsonl").open("ab") as file:
        file.write(b'\xff\xfe{"event": "case-finished", "verdict": "passed"}\n')
    return launch.finish()


def _flood(stage: Stage) -> Outcome:
    done = stage.launch(acts("flood", "noise", "pass")).finish()
    sizes = {path.name: path.stat().st_size for path in (stage.folder / "out" / "logs").iterdir()}
    assert max(sizes.values()) < 40 * 2**20, sizes
    return done


def _as_another_user(stage: Stage, cache: str) -> Outcome:
    """By a user without an entry in /etc/passwd, here and inside."""
    home = stage.folder / "home"
    home.mkdir()
    os.chown(home, 54321, 54321)
    group = Path(stage.url.removeprefix("unix://")).stat().st_gid
    reads = "+dac_read_search"  # this Python may lie where only root can read
    prefix = [
        "setpriv",
        "--reuid=54321",
        "--regid=54321",
        f"--groups={group}",
        f"--inh-caps={reads}",
        f"--ambient-caps={reads}",
    ]
    environment = {"KIT_CACHE": str(stage.folder / cache), "HOME": str(home)}
    done = stage.launch(acts("pass"), "home/out", environment=environment, process={"prefix": prefix}).finish()
    assert {path.stat().st_uid for path in (home / "out").rglob("*")} == {54321}
    return done


def _cache_of_root(stage: Stage) -> Outcome:
    (stage.folder / "cache").mkdir(mode=0o755)
    return _as_another_user(stage, "cache")


FAULTS = [
    # what is done to the container
    Fault("container-killed", _to_container("container-killed"), 5, IN_FLIGHT, "SIGKILL"),
    Fault(
        "container-removed",
        _to_container("container-removed"),
        5,
        IN_FLIGHT,
        "removed by someone else",
    ),
    Fault("container-stopped", _to_container("container-stopped"), 5, IN_FLIGHT, "SIGTERM"),
    Fault(
        "container-paused",
        _to_container("container-paused", run=25),
        5,
        IN_FLIGHT | {"0/1-hang": "timeout"},
        "time limit",
    ),
    Fault("worker-killed", _to_container("container-worker-killed"), 5, IN_FLIGHT, "SIGKILL"),
    Fault(
        "session-killed-from-outside",
        _to_container("container-session-killed"),
        5,
        IN_FLIGHT | {"1/0-pass": "passed"},
        "SIGKILL",
    ),
    # what a session does
    Fault("session-dies", _acts("pass", "kill", "pass"), 5, CRASH | {"0/1-kill": "crashed"}, "SIGKILL"),
    Fault("session-leaves", _acts("pass", "exit", "pass"), 5, CRASH | {"0/1-exit": "crashed"}, "exit code 0"),
    Fault(
        "session-raises",
        _acts("raise", "pass"),
        5,
        {"0/0-raise": "crashed", "0/1-pass": "passed", "1/0-pass": "passed"},
    ),
    Fault(
        "session-aborts-at-its-end",
        _acts("pass", spec=NullSession(abort_at_end=True)),
        5,
        {"0/0-pass": "crashed", "1/0-pass": "crashed"},
        "SIGABRT",
    ),
    Fault(
        "case-hangs",
        _acts("pass", "hang", "pass", case=1.0),
        5,
        CRASH | {"0/1-hang": "timeout"},
        "over its limit of 1 s",
    ),
    Fault(
        "session-never-ready",
        _acts("pass", spec=NullSession(start_seconds=60), start=1.5),
        5,
        {"0/0-pass": "timeout", "1/0-pass": "timeout"},
    ),
    Fault(
        "run-over-its-limit",
        _acts("pass", "hang", "pass", case=60, run=25),
        5,
        IN_FLIGHT | {"0/1-hang": "timeout"},
        "time limit of 25 s",
    ),
    Fault(
        "out-of-memory",
        _acts("pass", "memory"),
        3,
        {"0/0-pass": "passed", "0/1-memory": "environment", "1/0-pass": "passed"},
        "out of memory",
    ),
    Fault(
        "another-architecture",
        _acts("pass", architecture="gfx950"),
        3,
        {"0/0-pass": "environment", "1/0-pass": "environment"},
        "gfx950",
    ),
    Fault(
        "orphans",
        _acts("orphan", "pass"),
        0,
        {"0/0-orphan": "passed", "0/1-pass": "passed", "1/0-pass": "passed"},
    ),
    Fault(
        "flood-of-any-bytes",
        _flood,
        0,
        {"0/0-flood": "passed", "0/1-noise": "passed", "0/2-pass": "passed", "1/0-pass": "passed"},
    ),
    # what becomes of kit itself
    Fault("interrupted", _signal(signal.SIGINT), 130, STOPPED, "SIGINT"),
    Fault("terminated", _signal(signal.SIGTERM), 130, STOPPED, "SIGTERM"),
    Fault("terminal-gone", _signal(signal.SIGHUP), 130, STOPPED, "SIGHUP"),
    Fault("kit-killed", _kit_killed, 0, GREEN, "it was removed", alone=True),
    Fault("a-live-run-beside", _kit_alive, 0, GREEN),
    Fault(
        "two-at-once",
        _two_at_once,
        0,
        {"0/0-pass": "passed", "0/1-sleep": "passed", "1/0-pass": "passed"},
    ),
    Fault("two-into-one-folder", _one_folder, 2, None),
    Fault("nobody-reads-the-output", _unheard, 0, GREEN),
    Fault("clock-set-back", _clock(-400 * 86_400), 0, GREEN),
    Fault("clock-set-forward", _clock(400 * 86_400), 0, GREEN),
    # what the engine, the image or the machine lacks
    Fault("no-engine", _no_engine, 3, REFUSED, "no container engine answers"),
    Fault("name-taken", _same_name, 3, REFUSED, "the engine refused the container"),
    Fault("image-not-built", _not_built, 4, REFUSED, "is not built"),
    Fault("image-built-after-a-refusal", _refused_then_built, 0, GREEN),
    Fault("no-such-gpu", lambda stage: stage.launch(acts("pass"), profile="mi355x").finish(), 3, REFUSED, "gfx950"),
    # files
    Fault("odd-results-folder", lambda stage: stage.launch(acts("pass"), ODD).finish(), 0, GREEN),
    Fault("cache-cannot-be-made", _cache("/proc/sys/kit"), 3, REFUSED, "KIT_CACHE"),
    Fault("results-folder-gone", _folder_gone, 3, None),
    Fault("event-stream-damaged", _damaged_stream, 5, {"0/0-pass": "passed", "0/1-sleep": "passed"}, "damaged"),
    Fault(
        "results-disk-full-in-mid-run",
        _full_disk("18m", "pass", "flood", *["pass"] * 30),
        3,
        {"0/0-pass": "passed", "0/31-pass": "environment", "1/0-pass": "environment"},
        "could not be written",
        root=True,
    ),
    Fault("results-disk-too-small", _full_disk("4m", "pass"), 3, None, root=True),
    Fault(
        "results-folder-of-another-user",
        _folder_of_another,
        3,
        REFUSED,
        "belongs to user 65534",
        root=True,
    ),
    Fault(
        "user-without-a-name",
        lambda stage: _as_another_user(stage, "home/cache"),
        0,
        GREEN,
        root=True,
        another_user=True,
    ),
    Fault("cache-of-root", _cache_of_root, 3, REFUSED, "KIT_CACHE", root=True, another_user=True),
]
