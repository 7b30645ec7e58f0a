"""Prints what a run would do, without asking any engine or device."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import JsonValue
from rich.console import Console

from kit.host.container import as_command_line, container_user
from kit.host.devices import nominal
from kit.host.planner import models_of
from kit.host.run import Prepared
from kit.image import content_tag
from kit.plan import (
    CollectiveSession,
    KernelSession,
    NullSession,
    OfflineSession,
    PinnedModelSession,
    PinnedTextsSession,
    Plan,
    Session,
    SGLangSession,
)

Say = Callable[[str], None]


def print_plan(prepared: Prepared, console: Console) -> None:
    """The image, the container's arguments, the sessions and every case."""
    profile, plan, image = prepared.profile, prepared.plan, prepared.image

    def say(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    say(f"profile   {profile.name}: {profile.title}; {profile.gpus} × {profile.architecture}")
    if image is None:
        tag = "<no image>"
        for sentence in profile.missing:
            say(f"MISSING   {sentence}")
    else:
        tag = content_tag(image)
        say(f"image     {tag}, definition {image.name} {image.version}")
        say(f"base      {image.base_reference}")
    say(f"mode      {prepared.mode}, runtime {prepared.runtime}, time limit {plan.run_seconds:g} s")
    for fault in plan.faults:
        say(f"INJECTED  {fault.name} = {fault.strength:g}")
    say()
    if prepared.runtime == "local":
        say("no container: the worker runs in this Python")
    else:
        say("container" + ("" if prepared.runtime == "docker" else ", where an engine answers"))
        devices = nominal(profile, prepared.gpus)
        spec = prepared.container(tag, prepared.output or Path("RESULTS"), Path("ASSETS"), devices, container_user())
        for argument in as_command_line(spec):
            say(f"  {argument}")
    _print_assets(plan, say)
    _print_exceptions(prepared, say)
    for session in plan.sessions:
        say()
        _print_session(session, say)
        for case in plan.cases:
            if case.session == session.id:
                say(f"  {case.id}" + (f"  (skipped: {case.skip})" if case.skip else ""))
    say()
    say(
        f"{len(plan.sessions)} sessions, {len(plan.cases)} cases, {sum(c.skip is not None for c in plan.cases)} skipped"
    )


def _print_assets(plan: Plan, say: Say) -> None:
    say("")
    say(f"assets    made from seeds: {', '.join(models_of(plan)) or 'none'}")
    for asset in plan.pinned:
        say(f"          pinned: {asset.name} at {asset.revision or 'no revision: not locked'}")


def _print_exceptions(prepared: Prepared, say: Say) -> None:
    """Where this hardware is judged otherwise: limits of the profile, and waivers that are about a planned case."""
    plan = prepared.plan
    for case in plan.cases:
        for other in case.limits:
            say(f"limit     {case.id}, {other.measurement}: {other.limit:g}. {other.reason} {other.link}")
    for waiver in prepared.waivers.waiver:
        about = [case.id for case in plan.cases if waiver.about(case.id)]
        if about and fnmatchcase(plan.architecture, waiver.architecture):
            where = " and ".join(f"{software} {bounds}" for software, bounds in waiver.versions.items())
            when = f"{waiver.opened} to {waiver.expires}" + (f", with {where}" if where else "")
            say(f"waiver    {waiver.id}, {when}: {len(about)} of these cases. {waiver.reason} {waiver.link}")


def _print_session(session: Session, say: Say) -> None:
    spec = session.spec
    settings: dict[str, JsonValue] = {}
    match spec:
        case SGLangSession():
            what = f"SGLang, {spec.model}, {spec.dtype}, adapters {', '.join(spec.adapters) or 'none'}"
            settings = spec.engine
        case PinnedModelSession() | PinnedTextsSession():
            told = " and ".join(f"{asset.name} at {asset.revision or 'no revision'}" for asset in spec.assets)
            what, settings = f"SGLang, {told}", spec.engine
        case KernelSession():
            what = f"kernels of {spec.library}" + (", interpreted" if spec.interpreted else "")
        case CollectiveSession():
            what = f"all-reduce between {spec.ranks} ranks"
        case OfflineSession():
            what = f"without the hardware, for {', '.join(spec.architectures)}"
        case NullSession():
            what = "nothing, a rehearsal"
    say(f"session {session.id}: {what}; limits {session.start_seconds:g} s to start, {session.case_seconds:g} s a case")
    for name, value in {**settings, **spec.environment}.items():
        say(f"  . {name} = {value}")
    if spec.stand_ins:
        say(f"  . stand-ins: {', '.join(spec.stand_ins)}")
