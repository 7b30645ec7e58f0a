"""One run from the request to the exit code: plan, image, assets, worker, verdicts, reports."""

import datetime
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from kit.errors import EnvironmentFault, KitError, UsageFault
from kit.events import AnyEvent, RuntimeEnded, Trouble
from kit.faults.catalogue import parse_fault
from kit.host import assets, run_folder
from kit.host.container import ContainerSpec, container_spec
from kit.host.facts import host_facts
from kit.host.planner import Selection, make_plan, models_of, new_run_id, with_assets
from kit.host.runtime import Runtime
from kit.host.supervisor import Observed, StopRequest, supervise
from kit.image import ImageDefinition, find_image
from kit.names import unknown
from kit.plan import Plan
from kit.profile import Profile, find_profile
from kit.results.model import Mode, RunResult
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
        _refuse_in_qualify(selection, image, runtime)
    plan = make_plan(profile, selection, new_run_id())
    return Prepared(profile, image, mode, runtime, plan, load_waivers(), request.output)


Name = TypeVar("Name", bound=str)


def _one_of(kind: str, given: str, known: tuple[Name, ...]) -> Name:
    for name in known:
        if given.casefold() == name:
            return name
    raise unknown(kind, given, known)


def _refuse_in_qualify(selection: Selection, image: ImageDefinition, runtime: RuntimeName) -> None:
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
    display.line(f"runtime: {'docker' if client else 'local'} ({why})")
    image_facts = {"definition": f"{prepared.image.name} {prepared.image.version}"}
    image_id = ""
    if client is not None:
        from kit.host.image_build import check_image

        built = check_image(client, prepared.image)
        image_id = built.id
        image_facts |= {"id": built.id, "tag": built.tag} | built.labels
    assets_folder, files = assets.prepare(models_of(prepared.plan))
    plan = with_assets(prepared.plan, files)
    folder = run_folder.claim(prepared.output or run_folder.default_folder(prepared.profile.name))
    run_folder.write(folder / "plan.json", plan.model_dump_json(indent=1))
    runtime = _runtime(client, prepared, image_id, folder, assets_folder)
    seen = _supervised(plan, runtime, folder, stop, display)
    result = judge(
        plan,
        prepared.profile,
        mode=prepared.mode,
        worker_events=seen.worker,
        host_events=seen.host,
        waivers=prepared.waivers,
        today=datetime.datetime.now(datetime.UTC).date(),
        started=started,
        finished=time.time(),
        damaged=seen.damaged,
        image=image_facts,
        host=host_facts(),
    )
    return Finished(result, folder)


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


def _runtime(client: "DockerClient | None", prepared: Prepared, image: str, folder: Path, assets_folder: Path) -> Runtime:
    if client is None:
        from kit.host.local_runtime import LocalRuntime

        return LocalRuntime(folder, assets_folder)
    from kit.host.docker_runtime import DockerRuntime

    return DockerRuntime(client, prepared.container(image, folder, assets_folder))


def _supervised(plan: Plan, runtime: Runtime, folder: Path, stop: StopRequest, display: Display) -> Observed:
    """What was seen of the run, also where kit itself failed in the middle of it."""
    seen = Observed()
    try:
        supervise(plan, runtime, folder, stop, display.event, seen)
    except KitError:
        raise
    except Exception as error:
        reason = f"kit itself failed: {type(error).__name__}: {error}"
        display.line(reason)
        ending = RuntimeEnded(trouble=Trouble.CRASHED, reason=reason, interrupted=stop.made)
        seen.host.append(ending)
    return seen
