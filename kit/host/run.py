"""One run from the request to the exit code: plan, image, assets, worker, verdicts, reports."""

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from kit.errors import EnvironmentFault, ExitCode, ImageFault, KitError, UsageFault, is_disk_full
from kit.events import AnyEvent, EventLog, MachineFound, MachineLeft, RunRefused, RuntimeEnded, RuntimeStarted, Trouble
from kit.faults.catalogue import parse_injected
from kit.finding import Finding, Severity
from kit.host import assets, run_folder
from kit.host.container import ContainerSpec, container_spec, container_user
from kit.host.devices import ContainerDevices, check_wanted
from kit.host.doctor.look import Question, before_a_run
from kit.host.facts import host_facts
from kit.host.grant import Holding, container_grant, local_grant
from kit.host.pinned import pinned_folder, read_pinned, without_absent_assets
from kit.host.planner import Selection, make_plan, models_of, new_run_id, with_assets
from kit.host.rerun import selection_of_red
from kit.host.supervisor import Observed, StopRequest, supervise
from kit.image import ImageDefinition, find_image
from kit.names import unknown
from kit.offline_profile import SUFFIX
from kit.plan import Plan
from kit.profile import Profile, find_profile
from kit.results.environment import environment_of, installed_packages
from kit.results.files import write_all
from kit.results.model import Mode, RunResult
from kit.results.stored import ENVIRONMENT_FILE, HOST_FILE, PLAN_FILE, PROFILE_FILE, WAIVERS_FILE, as_json, day_of
from kit.results.sums import SUMS_FILE, seal
from kit.results.verdict import judge
from kit.waiver import Waivers, load_waivers

if TYPE_CHECKING:
    from docker import DockerClient

RuntimeName = Literal["auto", "docker", "local"]
RUNTIMES: tuple[RuntimeName, ...] = ("auto", "docker", "local")
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
    gpus: tuple[int, ...] = ()
    changes: tuple[str, ...] = ()
    offline: bool = False


@dataclass(frozen=True)
class Prepared:
    """A checked request: everything that can be wrong with names and files has been looked at, and nothing was started.

    `image` is None for a profile that kit cannot run yet (`Profile.missing`).
    """

    profile: Profile
    image: ImageDefinition | None
    mode: Mode
    runtime: RuntimeName
    plan: Plan
    waivers: Waivers
    output: Path | None
    gpus: tuple[int, ...] = ()

    def container(
        self, image: str, folder: Path, assets_folder: Path, devices: ContainerDevices, user: str
    ) -> ContainerSpec:
        """The container that this run gets."""
        pinned = pinned_folder(self.plan)
        return container_spec(self.profile, image, self.plan.run_id, folder, assets_folder, devices, user, pinned)


def prepare(request: Request) -> Prepared:
    """Check a request and plan it.

    Raises:
        KitError: a wrong name, glob, mode or TOML file; or what mode `qualify` refuses.
    """
    profile = find_profile(request.profile + (SUFFIX if request.offline else ""), changes=request.changes)
    check_wanted(profile, request.gpus)
    image = None if profile.missing else find_image(profile.image)
    selection = Selection(request.batteries, request.cases, tuple(parse_injected(text) for text in request.inject))
    mode = one_of("mode", request.mode, _MODES)
    runtime = one_of("runtime", request.runtime, RUNTIMES)
    if mode is Mode.QUALIFY:
        _refuse_in_qualify(request, selection, image, runtime)
        runtime = "docker"
    if request.rerun_failed is not None:
        selection = selection_of_red(request.rerun_failed, profile, selection)
    plan = make_plan(profile, selection, new_run_id())
    if mode is Mode.CI:
        plan = without_absent_assets(plan)
    waivers = load_waivers().named(profile.waivers)
    plan = with_inputs(plan, profile, waivers, mode)
    return Prepared(profile, image, mode, runtime, plan, waivers, request.output, request.gpus)


def with_inputs(plan: Plan, profile: Profile, waivers: Waivers, mode: Mode) -> Plan:
    """The plan, with the mode in which it is judged and the digests of the files that will lie beside it."""
    inputs = {PROFILE_FILE: _digest(as_json(profile)), WAIVERS_FILE: _digest(as_json(waivers))}
    return plan.model_copy(update={"mode": mode.value, "inputs": inputs})


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


Name = TypeVar("Name", bound=str)


def one_of(kind: str, given: str, known: tuple[Name, ...]) -> Name:
    """The known name that was typed, whatever its case. Raises UsageFault with the near matches."""
    for name in known:
        if given.casefold() == name:
            return name
    raise unknown(kind, given, known)


def _refuse_in_qualify(
    request: Request, selection: Selection, image: ImageDefinition | None, runtime: RuntimeName
) -> None:
    if request.changes:
        raise UsageFault("mode qualify takes a profile as it is", "drop --set, or use --mode ci")
    if request.offline or request.profile.casefold().endswith(SUFFIX):
        raise UsageFault(
            "mode qualify needs the hardware: checks without it qualify nothing",
            "drop --offline-checks, or use --mode ci",
        )
    if request.rerun_failed is not None:
        raise UsageFault("mode qualify takes no rerun", "drop --rerun-failed, or use --mode ci")
    if selection.partial:
        raise UsageFault("mode qualify runs every case of its profile", "drop --battery and --case, or use --mode ci")
    if selection.faults:
        raise UsageFault("mode qualify takes no injected fault", "drop --inject, or use --mode ci")
    if runtime == "local":
        raise UsageFault("mode qualify needs the pinned image", "use --runtime docker")
    if image is not None:
        image.refuse_unpinned()


class Display(Protocol):
    """Where a run tells how it goes."""

    def line(self, text: str) -> None:
        """One line of information."""

    def event(self, event: AnyEvent) -> None:
        """An event of the worker, as it comes."""


@dataclass(frozen=True)
class Finished:
    """The result of a run, the folder in which its reports belong, and the space there that is held for them.

    `refused` says why nothing was started; empty where something was.
    """

    result: RunResult
    folder: Path
    reserve: run_folder.Reserve
    refused: str = ""


@dataclass
class _Launch:
    """What is known of a run while it is made ready."""

    plan: Plan
    image: dict[str, str]
    seen: Observed = field(default_factory=Observed)


def execute(prepared: Prepared, stop: StopRequest, display: Display) -> Finished:
    """Run it. Once the results folder is claimed, every way out goes through complete reports: also where nothing can be started.

    Times are those of the wall clock at the start and of the monotonic clock after it: a clock that is set back changes neither
    durations nor the day on which waivers must be valid.

    Raises:
        KitError: the results folder cannot be had, or kit lacks what the profile needs.
    """
    image = _image_of(prepared)
    started, begin = time.time(), time.monotonic()
    folder, reserve = run_folder.claim(
        prepared.output or run_folder.default_folder(prepared.profile.name, prepared.plan.run_id)
    )
    launch = _Launch(prepared.plan, {"definition": f"{image.name} {image.version}"})
    refused = ""
    try:
        runtime = _made_ready(launch, prepared, image, folder, display)
        _supervised(launch, runtime, folder, stop, display)
    except KitError as fault:
        if fault.exit_code not in (ExitCode.ENVIRONMENT, ExitCode.IMAGE):
            run_folder.release(folder)
            raise
        refused = str(fault)
        _note(launch.seen, folder, RunRefused(exit_code=fault.exit_code, reason=refused))
    finished = started + (time.monotonic() - begin)
    result = judge(
        launch.plan,
        prepared.profile,
        mode=prepared.mode,
        worker_events=launch.seen.worker,
        host_events=launch.seen.host,
        waivers=prepared.waivers,
        today=day_of(finished),
        started=started,
        finished=finished,
        damaged=launch.seen.damaged,
        image=launch.image,
        host=host_facts(),
    )
    return Finished(result, folder, reserve, refused)


def _image_of(prepared: Prepared) -> ImageDefinition:
    if prepared.image is None:
        lacking = " ".join(prepared.profile.missing)
        raise UsageFault(
            f"profile {prepared.profile.name} cannot be run yet: {lacking.removesuffix('.')}",
            "'--dry-run' shows what it plans",
        )
    return prepared.image


def _made_ready(launch: _Launch, prepared: Prepared, image: ImageDefinition, folder: Path, display: Display) -> Holding:
    """Engine, machine, image, assets and the files of the run, in this order.

    Raises:
        KitError: one of them cannot be had.
    """
    _write_inputs(launch.plan, prepared, folder)
    client, why = engine_for(prepared.runtime)
    if client is None and prepared.mode is Mode.QUALIFY:
        raise EnvironmentFault(f"mode qualify needs the pinned image, and {why}", "start an engine, or use --mode ci")
    display.line(f"runtime: {'docker' if client else 'local'} ({why})")
    image_id = ""
    if client is not None:
        from kit.host import leftovers

        _tell(launch, folder, leftovers.removed(client), display)
    _tell(launch, folder, tuple(before_a_run(Question(prepared.profile, image, folder, client, True))), display)
    if client is not None:
        from kit.host.image_store import check_image

        built = check_image(client, image)
        if prepared.mode is Mode.QUALIFY and not built.base_is_pinned:
            raise ImageFault(
                f"image {built.tag} stands on another base than the pinned one of its definition, which qualify needs",
                f"run '{image.build_command}' without --base",
            )
        image_id = built.id
        launch.image |= {"id": built.id, "tag": built.tag} | built.labels
    if prepared.mode is Mode.QUALIFY:
        read_pinned(launch.plan, display.line)
    assets_folder, files = assets.prepare(models_of(launch.plan))
    launch.plan = with_assets(launch.plan, files)
    run_folder.write(folder / PLAN_FILE, as_json(launch.plan).decode())
    return _runtime(client, prepared, image_id, folder, assets_folder)


def _tell(launch: _Launch, folder: Path, findings: tuple[Finding, ...], display: Display) -> None:
    """Put on record what is not as it should be.

    Raises:
        EnvironmentFault: something of it forbids the run.
    """
    told = tuple(finding for finding in findings if finding.severity is not Severity.OK)
    for finding in told:
        display.line(str(finding))
    if told:
        _note(launch.seen, folder, MachineFound(findings=told))
    if refusing := [finding for finding in told if finding.severity is Severity.REFUSE]:
        more = f" (and {len(refusing) - 1} more)" if len(refusing) > 1 else ""
        first = refusing[0]
        raise EnvironmentFault(f"{first.check}: {'; '.join(filter(None, (first.what, first.why)))}{more}", first.remedy)


def _write_inputs(plan: Plan, prepared: Prepared, folder: Path) -> None:
    run_folder.write(folder / PROFILE_FILE, as_json(prepared.profile).decode())
    run_folder.write(folder / WAIVERS_FILE, as_json(prepared.waivers).decode())
    run_folder.write(folder / PLAN_FILE, as_json(plan).decode())


def write_reports(result: RunResult, folder: Path) -> tuple[Path, ...]:
    """Write the reports, then ``environment.json`` and, last of all, ``SHA256SUMS``; gives the paths of the reports.

    Raises:
        KitError: some cannot be written; what could be written was.
    """
    files = write_all(result, folder)
    environment = environment_of(result, installed_packages())
    run_folder.write(folder / ENVIRONMENT_FILE, as_json(environment).decode())
    try:
        seal(folder)
    except OSError as error:
        raise EnvironmentFault(f"{SUMS_FILE} cannot be written: {error.strerror}", "free some space") from None
    return files


def engine_for(runtime: RuntimeName) -> "tuple[DockerClient | None, str]":
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
) -> Holding:
    if client is None:
        from kit.host.local_runtime import LocalRuntime

        grant = local_grant(prepared.profile, prepared.gpus, os.environ)
        local = LocalRuntime(folder, assets_folder, grant.devices.environment, pinned_folder(prepared.plan))
        return Holding(local, grant)
    from kit.host.docker_runtime import DockerRuntime
    from kit.host.engine import engine_facts

    engine = engine_facts(client)
    grant = container_grant(prepared.profile, prepared.gpus, engine)
    user = container_user(engine.rootless)
    spec = prepared.container(image, folder, assets_folder, grant.devices, user)
    return Holding(DockerRuntime(client, spec, engine), grant)


def _supervised(launch: _Launch, runtime: Holding, folder: Path, stop: StopRequest, display: Display) -> None:
    """Follow the run to its end, also where kit itself fails in the middle of it.

    Raises:
        KitError: the worker could not be started.
    """
    seen = launch.seen
    try:
        supervise(launch.plan, runtime, folder, stop, display.event, seen)
    except (Exception, SystemExit) as error:
        started = any(isinstance(event, RuntimeStarted) for event in seen.host)
        if isinstance(error, KitError) and not started:
            raise
        machine = isinstance(error, KitError) or (isinstance(error, OSError) and is_disk_full(error))
        reason = f"{error}" if machine else f"kit itself failed: {type(error).__name__}: {error}"
        trouble = Trouble.ENVIRONMENT if machine else Trouble.CRASHED
        display.line(reason)
        _note(seen, folder, RuntimeEnded(trouble=trouble, reason=reason, interrupted=stop.made))
    if runtime.on_gpus:
        _note(seen, folder, MachineLeft(left=runtime.on_gpus))


def _note(seen: Observed, folder: Path, event: AnyEvent) -> None:
    """Add an event of the host, in the file too where the disk allows."""
    seen.host.append(event)
    with contextlib.suppress(OSError):
        log = EventLog(folder / HOST_FILE)
        log.append(event)
        log.close()
