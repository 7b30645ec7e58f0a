"""Turns a profile and a selection into a plan."""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from kit.batteries import BATTERIES, FURTHER
from kit.errors import UsageFault
from kit.names import near_matches, unknown
from kit.plan import AssetFile, Case, Devices, InjectedFault, OtherLimit, Plan, Session, SGLangSession
from kit.profile import Profile


@dataclass(frozen=True)
class Selection:
    """What to plan: batteries by name and cases by glob; empty means all. `faults` are injected on purpose.

    `rerun_of` is the run whose red cases these are.
    """

    batteries: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    faults: tuple[InjectedFault, ...] = field(default=())
    rerun_of: str | None = None

    @property
    def partial(self) -> bool:
        """Whether something of the profile may be left out."""
        return bool(self.batteries or self.cases)


def new_run_id() -> str:
    """A run id that sorts by time: ``20261130-160501-3fa94c``."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def make_plan(profile: Profile, selection: Selection, run_id: str) -> Plan:
    """The plan of a run, without its assets.

    Raises:
        UsageFault: an unknown battery, a glob that matches no case, or a session to start first that there is not.
    """
    for name in selection.batteries:
        if name not in BATTERIES:
            raise unknown("battery", name, BATTERIES)
    everything = list(_all_cases(profile))
    further = _asked_for(profile, selection)
    known = [case.id for _, case in (*everything, *further)]
    for glob in selection.cases:
        if not any(fnmatchcase(name, glob) for name in known):
            raise UsageFault(f"no case of profile {profile.name} matches '{glob}'", near_matches(glob, known))
    possible = {session.id for session, _ in everything}
    for name in profile.first:
        if name not in possible:
            raise UsageFault(
                f"profile {profile.name}, key 'first': there is no session '{name}'", near_matches(name, possible)
            )
    sessions: dict[str, Session] = {}
    cases: list[Case] = []
    for session, case in (*everything, *further):
        if selection.batteries and case.battery not in selection.batteries:
            continue
        if selection.cases and not any(fnmatchcase(case.id, glob) for glob in selection.cases):
            continue
        if sessions.setdefault(session.id, session) != session:
            raise ValueError(f"two different sessions are called {session.id}")
        cases.append(case)
    if not cases:
        raise UsageFault("the batteries and the case globs have no case in common", "drop one of the two")
    if len({case.id for case in cases}) != len(cases):
        raise ValueError("two cases have one id")
    return Plan(
        run_id=run_id,
        profile=profile.name,
        architecture=profile.architecture,
        sessions=tuple(sorted(sessions.values(), key=lambda session: session.id not in profile.first)),
        devices=devices_of(profile),
        cases=tuple(cases),
        omitted=len(everything) + len(further) - len(cases),
        faults=selection.faults,
        rerun_of=selection.rerun_of,
        run_seconds=profile.time.run.total_seconds(),
    )


_VISIBLE: dict[str, Literal["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"]] = {
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "amd": "HIP_VISIBLE_DEVICES",
}


def devices_of(profile: Profile) -> Devices:
    """What the sessions of a profile share."""
    return Devices(
        count=max(1, profile.gpus),
        sessions_at_once=profile.sessions_at_once,
        visible=_VISIBLE.get(profile.vendor),
    )


def _all_cases(profile: Profile) -> Iterator[tuple[Session, Case]]:
    served = profile.offline is None or profile.offline.stands_for is None
    for name, cases in BATTERIES.items():
        if not served and name != "kernels":
            continue  # no engine stands for hardware that is not there
        yield from (_limited(profile, *planned) for planned in cases(profile))


def _limited(profile: Profile, session: Session, case: Case) -> tuple[Session, Case]:
    """The case, with the limits that this hardware has instead of the check's own."""
    own = [limit for limit in profile.limits if fnmatchcase(case.id, limit.case)]
    if not own:
        return session, case
    limits = tuple(OtherLimit.model_validate(limit.model_dump(exclude={"case"})) for limit in own)
    return session, case.model_copy(update={"limits": limits})


def _asked_for(profile: Profile, selection: Selection) -> list[tuple[Session, Case]]:
    """Cases that belong to no profile and that a glob asks for by name: it has their battery and subject without a star."""
    named = {tuple(glob.split("/")[:2]) for glob in selection.cases}
    return [
        (session, case)
        for session, case in further_cases(profile)
        if tuple(case.id.split("/")[:2]) in named and any(fnmatchcase(case.id, glob) for glob in selection.cases)
    ]


def further_cases(profile: Profile) -> Iterator[tuple[Session, Case]]:
    """Cases that this hardware may be asked for by name, and that do not belong to the profile."""
    for cases in FURTHER.values():
        yield from (_limited(profile, *planned) for planned in cases(profile))


def models_of(plan: Plan) -> tuple[str, ...]:
    """The synthetic models that a plan needs."""
    return tuple(sorted({s.spec.model for s in plan.sessions if isinstance(s.spec, SGLangSession)}))


def with_assets(plan: Plan, assets: tuple[AssetFile, ...]) -> Plan:
    """The plan, with what its assets folder must hold."""
    return plan.model_copy(update={"assets": assets})
