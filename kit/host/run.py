"""One run from the request to the exit code: plan, image, assets, worker, verdicts, reports."""

import contextlib
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from kit.errors import EnvironmentFault, ImageFault, KitError, UsageFault, is_disk_full
from kit.events import AnyEvent, EventLog, RuntimeEnded, Trouble
from kit.faults.catalogue import parse_fault
from kit.host import assets, run_folder
from kit.host.container import ContainerSpec, container_spec
from kit.host.facts import host_facts
from kit.host.planner import Selection, make_plan, models_of, new_run_id, with_assets
from kit.host.rerun import selection_of_red
from kit.host.runtime import Runtime
from kit.host.supervisor import Observed, StopRequest, supervise
from kit.image import ImageDefinition, find_image
from kit.names import unknown
from kit.plan import Plan
from kit.profile import Profile, find_profile
from kit.results.environment import environment_of, installed_packages
from kit.results.model import Mode, RunResult
from kit.results.stored import ENVIRONMENT_FILE, HOST_FILE, PLAN_FILE, PROFILE_FILE, WAIVERS_FILE, as_json, day_of
from kit.results.sums import SUMS_FILE, seal
from kit.results.verdict import judge
from kit.waiver import Waivers, load_waivers

if TYPE_CHECKING:
    from docker import DockerClient

RuntimeName = Literal["auto", "docker", "local"]
_RUNTIMES: tuple[RuntimeName, ...] = ("auto", "docker", "local")
_MODES = tuple(Mode)


@dataclass(frozen=True)
class Request:
    """What the user asked for, as typed."""

    profile: str
    runtime: str = "auto"
    mode: str = "ci"
    output: Path | None = None
    batteries: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    inject: tuple[str, ...] = ()
    rerun_failed: Path | None = None


@dataclass(frozen=True)
class Prepared:
    """A checked request: everything that can be wrong with names and files has been looked at, and nothing was started."""

    profile: Profile
    image: ImageDefinition
    mode: Mode
    runtime: RuntimeName
    plan: Plan
    waivers: Waivers
    output: Path | None

    def container(self, image: str, folder: Path, assets_folder: Path) -> ContainerSpec:
        """The container that this run gets."""
        return container_spec(self.profile, image, self.plan.run_id, folder, assets_folder)


def prepare(request: Request) -> Prepared:
    """Check a request and plan it.

    Raises:
        KitError: a wrong name, glob, mode or TOML file; or what mode `qualify` refuses.
    """
    profile = find_profile(request.profile)
    image = find_image(profile.image)
    selection = Selection(request.batteries, request.cases, tuple(parse_fault(text) for text in request.inject))
    mode = _one_of("mode", request.mode, _MODES)
    runtime = _one_of("runtime", request.runtime, _RUNTIMES)
    if mode is Mode.QUALIFY:
        _refuse_in_qualify(request, selection, image, runtime)
        runtime = "docker"
    if request.rerun_failed is not None:
        selection = selection_of_red(request.rerun_failed, profile, selection)
    plan = make_plan(profile, selection, new_run_id())
    waivers = load_waivers()
    inputs = {PROFILE_FILE: _digest(as_json(profile)), WAIVERS_FILE: _digest(as_json(waivers))}
    plan = plan.model_copy(update={"mode": mode.value, "inputs": inputs})
    return Prepared(profile, image, mode, runtime, plan, waivers, request.output)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


Name = TypeVar("Name", bound=str)


def _one_of(kind: str, given: str, known: tuple[Name, ...]) -> Name:
    for name in known:
        if given.casefold() == name:
            return name
    raise unknown(kind, given, known)


def _refuse_in_qualify(request: Request, selection: Selection, image: ImageDefinition, runtime: RuntimeName) -> None:
    if request.rerun_failed is not None:
        raise UsageFault("mode qualify takes no rerun", "drop --rerun-failed, or use --mode ci")
    if selection.partial:
        raise UsageFault("mode qualify runs every case of its profile", "drop --battery and --case, or use --mode ci")
    if selection.faults:
        raise UsageFault("mode qualify takes no injected fault", "drop --inject, or use --mode ci")
    if runtime == "local":
        raise UsageFault("mode qualify needs the pinned image", "use --runtime docker")
    image.refuse_unpinned()


class Display(Protocol):
    """Where a run tells how it goes."""

    def line(self, text: str) -> None:
        """One line of information."""

    def event(self, event: AnyEvent) -> None:
        """An event of the worker, as it comes."""


@dataclass(frozen=True)
class Finished:
    """The result of a run, and the folder in which its reports belong (`kit.results.files.write_all`)."""

    result: RunResult
    folder: Path


def execute(prepared: Prepared, stop: StopRequest, display: Display) -> Finished:
    """Run it. Once the worker was started, every way out goes through complete reports.

    Raises:
        KitError: nothing was started: no engine, no image, no output folder, or a container that the engine refused.
    """
    started = time.time()
    client, why = _engine(prepared.runtime)
    if client is None and prepared.mode is Mode.QUALIFY:
        raise EnvironmentFault(f"mode qualify needs the pinned image, and {why}", "start an engine, or use --mode ci")
    display.line(f"runtime: {'docker' if client else 'local'} ({why})")
    image_facts = {"definition": f"{prepared.image.name} {prepared.image.version}"}
    image_id = ""
    if client is not None:
        from kit.host.image_build import check_image

        built = check_image(client, prepared.image)
        if prepared.mode is Mode.QUALIFY and not built.base_is_pinned:
            raise ImageFault(
                f"image {built.tag} stands on another base than the pinned one of its definition, which qualify needs",
                f"run '{prepared.image.build_command}' without --base",
            )
        image_id = built.id
        image_facts |= {"id": built.id, "tag": built.tag} | built.labels
    assets_folder, files = assets.prepare(models_of(prepared.plan))
    plan = with_assets(prepared.plan, files)
    folder = run_folder.claim(prepared.output or run_folder.default_folder(prepared.profile.name, plan.run_id))
    try:
        run_folder.write(folder / PROFILE_FILE, as_json(prepared.profile).decode())
        run_folder.write(folder / WAIVERS_FILE, as_json(prepared.waivers).decode())
        run_folder.write(folder / PLAN_FILE, as_json(plan).decode())
        runtime = _runtime(client, prepared, image_id, folder, assets_folder)
        seen = _supervised(plan, runtime, folder, stop, display)
    except KitError:
        run_folder.release(folder)
        raise
    finished = time.time()
    result = judge(
        plan,
        prepared.profile,
        mode=prepared.mode,
        worker_events=seen.worker,
        host_events=seen.host,
        waivers=prepared.waivers,
        today=day_of(finished),
        started=started,
        finished=finished,
        damaged=seen.damaged,
        image=image_facts,
        host=host_facts(),
    )
    return Finished(result, folder)


def conclude(finished: Finished) -> None:
    """After the reports: write what is left, ``environment.json`` and, last of all, ``SHA256SUMS``.

    Raises:
        EnvironmentFault: they cannot be written.
    """
    environment = environment_of(finished.result, installed_packages())
    run_folder.write(finished.folder / ENVIRONMENT_FILE, as_json(environment).decode())
    try:
        seal(finished.folder)
    except OSError as error:
        raise EnvironmentFault(f"{SUMS_FILE} cannot be written: {error.strerror}", "free some space") from None


def _engine(runtime: RuntimeName) -> "tuple[DockerClient | None, str]":
    """A client where the run goes into a container, and why."""
    if runtime == "local":
        return None, "asked for"
    from kit.host.docker_runtime import connect

    if runtime == "docker":
        return connect(), "asked for"
    try:
        return connect(), "an engine answers"
    except EnvironmentFault as fault:
        return None, fault.problem


def _runtime(
    client: "DockerClient | None", prepared: Prepared, image: str, folder: Path, assets_folder: Path
) -> Runtime:
    if client is None:
        from kit.host.local_runtime import LocalRuntime

        return LocalRuntime(folder, assets_folder)
    from kit.host.docker_runtime import DockerRuntime

    return DockerRuntime(client, prepared.container(image, folder, assets_folder))


def _supervised(plan: Plan, runtime: Runtime, folder: Path, stop: StopRequest, display: Display) -> Observed:
    """What was seen of the run, also where kit itself failed in the middle of it.

    Raises:
        KitError: the worker could not be started.
    """
    seen = Observed()
    try:
        supervise(plan, runtime, folder, stop, display.event, seen)
    except (Exception, SystemExit) as error:
        if isinstance(error, KitError) and not seen.host:
            raise
        machine = isinstance(error, KitError) or (isinstance(error, OSError) and is_disk_full(error))
        reason = f"{error}" if machine else f"kit itself failed: {type(error).__name__}: {error}"
        trouble = Trouble.ENVIRONMENT if machine else Trouble.CRASHED
        display.line(reason)
        ending = RuntimeEnded(trouble=trouble, reason=reason, interrupted=stop.made)
        seen.host.append(ending)
        with contextlib.suppress(OSError):
            log = EventLog(folder / HOST_FILE)
            log.append(ending)
            log.close()
    return seen
