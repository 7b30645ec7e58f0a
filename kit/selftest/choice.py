"""Which cases are asked under which faults. A plan comes of it, so that all else is a run like any other."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kit.batteries import BATTERIES
from kit.batteries.mixed_batches import TEXT
from kit.batteries.planned import Planned
from kit.batteries.sessions import sglang
from kit.check_spec import (
    AdapterLife,
    CheckSpec,
    DecodeLogprobs,
    NullCheck,
    PromptLogprobs,
)
from kit.errors import UsageFault
from kit.faults.catalogue import FAULTS, MARK, expected_red, fault_text, parse_fault
from kit.faults.process_catalogue import ACTS, SIGNALS, TELLING
from kit.host.planner import devices_of
from kit.plan import Case, InjectedFault, NullSession, Plan, Session
from kit.profile import Profile
from kit.selftest.cost import cost
from kit.selftest.rounds import dealt, first_round
from kit.selftest.sweep import kinds_to_sweep, swept
from kit.synthetic.catalogue import TINY_QWEN3
from kit.synthetic.program_names import REFUSED
from kit.waiver import Waivers

ALL, NONE = "all", "none"
_OF_ENGINES = ("adapters", "answers", "engine")
_BESIDE_A_RUN = ("containers", "reports")
"""Containers are launched, and records altered, after the run (`kit.selftest.beside`)."""
_BESIDE_THE_PLAN = (*_BESIDE_A_RUN, "ranks")
"""Ranks of an all-reduce cannot change their faults while they live."""
_FEW = 2
_ASKED_WHERE_NONE_MUST = 4
_NULL_SECONDS = 5.0
_SIGNALLED_SECONDS = 30.0
"""A case of one short prompt; loading adapters anew is part of it."""
_INTERPRETED = 20.0


@dataclass(frozen=True)
class Choice:
    """What a self-test asks.

    Attributes:
        faults: as typed, such as ``adapter-scaling=1.1``; ``all`` means all, as reported, and ``none`` none. Empty means all,
            or none where something is swept.
        rounds: fault-free rounds over different seeds.
        cases: globs that choose among the profile's cases; empty means all.
        sweeps: names of the faults whose smallest strength that is seen is looked for, or ``all``.
    """

    faults: tuple[str, ...] = ()
    rounds: int = 1
    cases: tuple[str, ...] = ()
    sweeps: tuple[str, ...] = ()

    @property
    def of_all(self) -> bool:
        """Whether no fault was left out by name."""
        return ALL in self.faults or not (self.faults or self.sweeps)

    @property
    def asked(self) -> tuple[str, ...]:
        """The faults to ask about, as typed."""
        named = tuple(text for text in self.faults if text not in (ALL, NONE))
        return (*(kind.as_reported for kind in FAULTS.values()), *named) if self.of_all else named


def selftest_plan(profile: Profile, waivers: Waivers, choice: Choice, run_id: str) -> Plan:
    """The cases that are asked under each fault, and without one.

    Raises:
        UsageFault: an unknown fault, or one that no case of this profile is about.
    """
    asked_about = tuple(dict.fromkeys(map(parse_fault, choice.asked)))
    faults = tuple(fault for fault in asked_about if FAULTS[fault.name].acts_on not in _BESIDE_THE_PLAN)
    _refuse_ranks(asked_about, choice)
    around = any(FAULTS[fault.name].acts_on in _BESIDE_A_RUN for fault in asked_about)
    kinds = kinds_to_sweep(choice.sweeps)
    known = [planned for planned in _cases(profile, waivers) if _is_chosen(planned.case, choice.cases)]
    chosen: list[Planned] = []
    for fault in faults:
        found = list(_of_process(profile, fault) if fault.name in TELLING else under(fault, known))
        if not found and not choice.of_all:
            raise UsageFault(f"no case of profile {profile.name} is about the fault '{fault.name}'", "leave it out")
        chosen += found
    asked = {planned.case.id.partition(MARK)[0] for planned in chosen}
    engines = {planned.session.id for planned in chosen}
    for kind in kinds:
        chosen += swept(kind, _ranked(_about(InjectedFault(name=kind.name, strength=1.0), known)))
    if faults and choice.rounds:
        chosen += first_round(known, asked)
    chosen += dealt(range(1 if faults or around else 0, choice.rounds), known, engines)
    if around and not chosen:
        chosen.append(_of_nothing(profile))
    if not chosen:
        raise UsageFault("nothing is left to ask", "choose other faults or cases")
    sessions = {planned.session.id: planned.session for planned in chosen}
    return Plan(
        run_id=run_id,
        profile=profile.name,
        architecture=profile.architecture,
        sessions=tuple(sessions.values()),
        devices=devices_of(profile),
        cases=tuple(planned.case for planned in chosen),
        run_seconds=profile.time.run.total_seconds(),
    )


def _refuse_ranks(faults: Sequence[InjectedFault], choice: Choice) -> None:
    named = [fault.name for fault in faults if FAULTS[fault.name].acts_on == "ranks"]
    if named and not choice.of_all:
        raise UsageFault(
            f"no self-test can ask about the fault '{named[0]}': ranks keep it while they live",
            f"use 'kit run --inject {named[0]}' on a profile of several GPUs",
        )


def under(fault: InjectedFault, known: Sequence[Planned]) -> Iterator[Planned]:
    """The cheapest cases of each battery that must see a fault, of different sessions where there are; else those that might.

    Beside them stands one in which texts of three identities are generated, so that upstream's rules on texts can judge too.
    """
    about = _about(fault, known)
    if not any(expected_red((fault,), planned.case) for planned in about):
        chosen = _spread(about, _ASKED_WHERE_NONE_MUST)
    else:
        chosen = [
            planned
            for battery in BATTERIES
            for planned in _spread([p for p in about if p.case.battery == battery], _FEW)
        ]
    if about and FAULTS[fault.name].acts_on in _OF_ENGINES:
        chosen += [p for p in known if p.case.id.endswith(f"/{TEXT}") and p not in chosen][:1]
    for session, case in chosen:
        other = case.model_copy(update={"id": f"{case.id}{MARK}{fault_text(fault)}", "faults": (fault,)})
        yield Planned(session, other)


def _about(fault: InjectedFault, known: Sequence[Planned]) -> list[Planned]:
    """The cases that must see a fault; where there is none, those that might."""
    must = [planned for planned in known if expected_red((fault,), planned.case)]
    engine = FAULTS[fault.name].acts_on == "engine"
    return must or [planned for planned in known if engine and _might_see(fault.name, planned)]


def _cases(profile: Profile, waivers: Waivers) -> Iterator[Planned]:
    """Those that are green without a fault, as far as is known, however often a session is asked.

    A program of refusals can be asked once: SGLang loads again by itself what stood under a name before.
    """
    excused = [
        glob
        for waiver in waivers.named(profile.waivers).waiver
        for glob in ([waiver.case] if isinstance(waiver.case, str) else waiver.case)
    ]
    for cases in BATTERIES.values():
        for planned in cases(profile):
            once = isinstance(planned.case.spec, AdapterLife) and planned.case.spec.program.startswith(REFUSED)
            if (
                planned.case.skip is None
                and not once
                and not any(fnmatchcase(planned.case.id, glob) for glob in excused)
            ):
                yield planned


def _is_chosen(case: Case, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(case.id, glob) for glob in globs)


def _spread(planned: Iterable[Planned], most: int) -> list[Planned]:
    """The cheapest, one session after another."""
    return _ranked(planned)[:most]


def _ranked(planned: Iterable[Planned]) -> list[Planned]:
    """The cheapest of each session, the cheapest first; then all others in that order."""
    ordered = sorted(planned, key=lambda p: (cost(p.case.spec) * _slowness(p.session), p.case.id))
    first = {p.session.id: p for p in reversed(ordered)}
    ranked = [p for p in ordered if first[p.session.id] is p]
    return ranked + [p for p in ordered if first[p.session.id] is not p]


def _might_see(fault: str, planned: Planned) -> bool:
    if fault.startswith("chunk-"):
        return "chunked-prefill" in planned.session.id or "radix-cache" in planned.session.id
    return planned.case.battery == "multi-lora" or isinstance(planned.case.spec, DecodeLogprobs)


def _slowness(session: Session) -> float:
    """Engines whose Triton kernels are interpreted take many times as long; kernel sessions are compared among themselves."""
    return _INTERPRETED if session.spec.environment.get("TRITON_INTERPRET") == "1" else 1.0


def _of_process(profile: Profile, fault: InjectedFault) -> Iterator[Planned]:
    """A session of its own that ends in the way of the fault: the subject that computes nothing, or an engine with one adapter."""
    spec: CheckSpec
    if fault.name in SIGNALS:
        adapter = TINY_QWEN3.adapters[0].name
        session = sglang(profile, TINY_QWEN3, (adapter,), fault.name)
        session = session.model_copy(update={"case_seconds": _SIGNALLED_SECONDS})
        spec, subject = PromptLogprobs(adapter=adapter, prompt_lengths=(17,), seed=0), TINY_QWEN3.name
    else:
        act = ACTS[fault.name].act
        session = _null_session(profile, fault.name, abort_at_end=act is None)
        spec, subject = NullCheck(act=act or "pass"), "null"
    case_id = f"process/{subject}/{fault.name}{MARK}{fault.name}"
    yield Planned(session, Case(id=case_id, session=session.id, spec=spec, faults=(fault,)))


def _of_nothing(profile: Profile) -> Planned:
    """A run's only case where all that is asked about is around a run."""
    session = _null_session(profile, "passes")
    return Planned(session, Case(id=f"process/null/passes{MARK}0", session=session.id, spec=NullCheck(act="pass")))


def _null_session(profile: Profile, name: str, *, abort_at_end: bool = False) -> Session:
    return Session(
        id=f"null-{name}",
        spec=NullSession(abort_at_end=abort_at_end, architecture=profile.architecture),
        start_seconds=60.0,
        case_seconds=_NULL_SECONDS,
    )
