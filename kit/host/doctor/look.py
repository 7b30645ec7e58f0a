"""All checks of a profile on this machine, in the order in which a run needs them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kit.errors import ExitCode, KitError
from kit.finding import Finding, Severity
from kit.host.devices import host_gpus
from kit.host.doctor.gpus import gpus_or_fault, look_at_driver, look_at_gpus
from kit.host.doctor.machine import look_at_machine
from kit.host.drivers import driver_facts
from kit.host.grant import VISIBLE
from kit.host.lockfile import read_lock
from kit.host.nvml import cuda_of_driver
from kit.image import ImageDefinition
from kit.profile import Profile

if TYPE_CHECKING:
    from docker import DockerClient

_OF_THE_IMAGE = ("image", "assets")


@dataclass(frozen=True)
class Question:
    """What is asked: whether this profile and image can run here, with `client` in a container, with results in `results`.

    Attributes:
        image: None where the profile has none yet.
        claimed: the run holds the space for its reports already.
        root: where the machine's file tree begins.
    """

    profile: Profile
    image: ImageDefinition | None
    results: Path
    client: "DockerClient | None"
    claimed: bool = False
    root: Path = Path("/")


def before_a_run(question: Question) -> Iterator[Finding]:
    """What every run looks at first. Engine, image, leftovers and assets are not among it: a run meets these itself."""
    profile, container = question.profile, question.client is not None
    given = not container and any(os.environ.get(name) for name in VISIBLE.get(profile.vendor, ()))
    gpus, fault = gpus_or_fault(lambda: host_gpus(question.root)) if profile.gpus else ((), None)
    if fault is not None:
        yield fault
    else:
        yield from look_at_gpus(profile, gpus, question.root, container, given)
    if any(gpu.vendor == profile.vendor for gpu in gpus):
        cuda = cuda_of_driver() if profile.vendor == "nvidia" else None
        facts = driver_facts(question.root / "proc", question.root / "sys")
        yield look_at_driver(profile, facts, cuda, _cuda_of(question.image))
    yield from look_at_machine(profile, question.results, container, question.claimed)


def everything(question: Question, engine: str, asked_for_engine: bool) -> Iterator[Finding]:
    """All of it, for ``kit doctor``.

    Args:
        engine: why there is, or is no, container engine.
        asked_for_engine: without one, a run could not start.
    """
    yield from before_a_run(question)
    yield _engine(question, engine, asked_for_engine)
    if question.client is not None:
        from kit.host import leftovers
        from kit.host.image_store import check_image

        yield from leftovers.told(question.client)
        if question.image is not None:
            try:
                built = check_image(question.client, question.image)
                yield Finding(check="image", severity=Severity.OK, what=f"{built.tag} is there, as it was built")
            except KitError as fault:
                yield _refused("image", fault, "nothing else may stand in for it")
    if question.image is None:
        missing = " ".join(question.profile.missing)
        yield Finding(
            check="image",
            severity=Severity.REFUSE,
            what=missing,
            why="the profile cannot be run yet",
            remedy="see its TOML",
        )
    yield _assets(question.profile)
    yield from _pinned(question.profile)


def exit_code_of(findings: tuple[Finding, ...]) -> ExitCode:
    """0 where nothing refuses a run; 4 where only image or assets do; else 3."""
    refusing = [finding.check for finding in findings if finding.severity is Severity.REFUSE]
    if not refusing:
        return ExitCode.CONFORMS
    return ExitCode.IMAGE if all(check in _OF_THE_IMAGE for check in refusing) else ExitCode.ENVIRONMENT


def _engine(question: Question, why: str, asked_for: bool) -> Finding:
    if question.client is not None:
        from kit.host.engine import engine_facts

        try:
            engine = engine_facts(question.client)
        except KitError as fault:
            return _refused("engine", fault, "the run goes into a container")
        kinds = [word for word, there in (("rootless", engine.rootless), ("remapped users", engine.remapped)) if there]
        extra = f" ({', '.join(kinds)})" if kinds else ""
        return Finding(check="engine", severity=Severity.OK, what=f"{engine.kind} {engine.version}{extra}")
    if asked_for:
        return Finding(
            check="engine",
            severity=Severity.REFUSE,
            what=why,
            why="the run goes into a container",
            remedy="start one, or use --runtime local",
        )
    return _local(why)


def _local(why: str) -> Finding:
    from kit.host.local_runtime import missing_module

    if missing := missing_module():
        what = f"no container ({why}), and {missing} is not installed in this Python"
        remedy = "start an engine, or run kit inside the image"
        return Finding(
            check="engine", severity=Severity.REFUSE, what=what, why="there is nothing to run", remedy=remedy
        )
    return Finding(check="engine", severity=Severity.OK, what=f"no container ({why}); the worker runs in this Python")


def _assets(profile: Profile) -> Finding:
    from kit.host import assets
    from kit.host.planner import Selection, make_plan, models_of, new_run_id

    models = models_of(make_plan(profile, Selection(), new_run_id()))
    if assets.present(models):
        return Finding(
            check="assets", severity=Severity.OK, what=f"{len(models)} synthetic models are there, unchanged"
        )
    what = f"{len(models)} synthetic models are made when a run needs them"
    return Finding(check="assets", severity=Severity.OK, what=what)


def _pinned(profile: Profile) -> Iterator[Finding]:
    """The pinned assets of the real models that the profile lists, by the records of the cache."""
    from kit.host.asset_cache import asset_folder
    from kit.host.planner import Selection, make_plan, new_run_id

    why = "the cases of its model are skipped, and mode qualify refuses the run"
    for pinned in make_plan(profile, Selection(), new_run_id()).pinned:
        try:
            asset_folder(pinned.name)
        except KitError as fault:
            yield Finding(check="assets", severity=Severity.WARN, what=fault.problem, why=why, remedy=fault.remedy)
        else:
            yield Finding(check="assets", severity=Severity.OK, what=f"{pinned.name} is there, as it was verified")


def _refused(check: str, fault: KitError, why: str) -> Finding:
    return Finding(check=check, severity=Severity.REFUSE, what=fault.problem, why=why, remedy=fault.remedy)


def _cuda_of(image: ImageDefinition | None) -> int | None:
    """The CUDA major version that an image was built for, from its lock."""
    if image is None:
        return None
    try:
        pins = {pin.name: pin.version for pin in read_lock(image)}
    except KitError:
        return None
    version = pins.get("nvidia-cuda-runtime", "")
    return int(version.split(".")[0]) if version[:1].isdigit() else None
