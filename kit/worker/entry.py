"""The worker: runs the sessions of a plan as child processes and writes the event stream."""

import os
import platform
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from kit import __version__
from kit.digest import file_sha256
from kit.events import EventLog, SessionEnded, Trouble, WorkerFinished, WorkerStarted
from kit.plan import Plan
from kit.process import adopt_orphans, die_with_parent
from kit.worker.scheduler import Scheduler

_REPORTED_PACKAGES = ("torch", "sglang", "sglang-kernel", "triton", "transformers", "peft", "numpy", "wave-lang")


def run_plan(folder: Path, assets: Path, pinned: Path | None = None) -> None:
    """Run every session of ``folder/plan.json``; events go to ``folder/events.jsonl``, output to ``folder/logs``."""
    die_with_parent(os.getppid())
    adopt_orphans()
    plan = Plan.model_validate_json((folder / "plan.json").read_bytes())
    log = EventLog(folder / "events.jsonl")
    log.append(WorkerStarted(run_id=plan.run_id, pid=os.getpid(), facts=_facts()))
    scratch = Path(tempfile.mkdtemp(prefix="kit-scratch-"))
    try:
        fault = damaged_asset(plan, assets)
        if fault is None:
            Scheduler(plan, folder, assets, scratch, log, pinned).run()
        else:
            for session in plan.sessions:
                log.append(SessionEnded(session=session.id, trouble=Trouble.ENVIRONMENT, reason=fault))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    log.append(WorkerFinished())
    log.close()


def damaged_asset(plan: Plan, assets: Path) -> str | None:
    """Why the assets folder is not what the plan says, in one line; None if it is."""
    for file in plan.assets:
        try:
            found = file_sha256(assets / file.path)
        except OSError as error:
            return f"asset {file.path} cannot be read: {error.strerror}"
        if found != file.sha256:
            return f"asset {file.path} is damaged: SHA-256 is {found}, the plan says {file.sha256}"
    return None


def _facts() -> dict[str, str]:
    facts = {
        "kit": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": str(len(os.sched_getaffinity(0))),
    }
    for name in _REPORTED_PACKAGES:
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return facts
