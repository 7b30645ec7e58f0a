"""Which cases are asked under which faults. A plan comes of it, so that all else is a run like any other."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kit.batteries import BATTERIES
from kit.batteries.planned import Planned
from kit.check_spec import (
    AdapterLife,
    BatchInvariance,
    CacheReuse,
    CheckSpec,
    DecodeLogprobs,
    FirstRequests,
    GivenPrompt,
    MixedBatches,
    NullCheck,
    PromptLogprobs,
)
from kit.errors import UsageFault
from kit.faults.catalogue import FAULTS, MARK, expected_red, fault_text, parse_fault
from kit.faults.process_catalogue import ACTS
from kit.host.planner import devices_of
from kit.plan import Case, InjectedFault, NullSession, Plan, Session
from kit.profile import Profile
from kit.synthetic.program_names import REFUSED
from kit.waiver import Waivers

SEED_STEP = 1009
"""From one fault-free round to the next; far from what any battery takes."""

_FEW = 2
_ASKED_WHERE_NONE_MUST = 4
_NULL_SECONDS = 5.0
_INTERPRETED = 20.0


@dataclass(frozen=True)
class Choice:
    """What a self-test asks.

    Attributes:
        faults: as typed, such as ``adapter-scaling=1.1``; empty means all, as reported.
        rounds: fault-free rounds over different seeds.
        cases: globs that choose among the profile's cases; empty means all.
    """

    faults: tuple[str, ...] = ()
    rounds: int = 1
    cases: tuple[str, ...] = ()


def selftest_plan(profile: Profile, waivers: Waivers, choice: Choice, run_id: str) -> Plan:
    """The cases that are asked under each fault, and without one.

    Raises:
        UsageFault: an unknown fault, or one that no case of this profile is about.
    """
    asked = choice.faults or tuple(kind.as_reported for kind in FAULTS.values())
    faults = tuple(fault for fault in dict.fromkeys(parse_fault(text) for text in asked) if not _beside_the_plan(fault))
    known = [planned for planned in _cases(profile, waivers) if _is_chosen(planned.case, choice.cases)]
    chosen: list[Planned] = []
    for fault in faults:
        found = list(_of_process(profile, fault) if fault.name in ACTS else under(fault, known))
        if not found and choice.faults:
            raise UsageFault(f"no case of profile {profile.name} is about the fault '{fault.name}'", "leave it out")
        chosen += found
    chosen += _without(choice.rounds, known, chosen)
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


def _beside_the_plan(fault: InjectedFault) -> bool:
    """Ranks of an all-reduce cannot change their faults while they live; records are altered after the run."""
    return FAULTS[fault.name].acts_on in ("ranks", "reports")


def under(fault: InjectedFault, known: Sequence[Planned]) -> Iterator[Planned]:
    """The cheapest cases of each battery that must see a fault, of different sessions where there are; else those that might."""
    must = [planned for planned in known if expected_red((fault,), planned.case)]
    if must:
        chosen = [
            planned
            for battery in BATTERIES
            for planned in _spread([p for p in must if p.case.battery == battery], _FEW)
        ]
    else:
        engine = FAULTS[fault.name].acts_on == "engine"
        chosen = _spread([p for p in known if engine and _might_see(fault.name, p)], _ASKED_WHERE_NONE_MUST)
    for session, case in chosen:
        other = case.model_copy(update={"id": f"{case.id}{MARK}{fault_text(fault)}", "faults": (fault,)})
        yield Planned(session, other)


def _cases(profile: Profile, waivers: Waivers) -> Iterator[Planned]:
    """Those that are green without a fault, as far as is known."""
    excused = [
        glob
        for waiver in waivers.named(profile.waivers).waiver
        for glob in ([waiver.case] if isinstance(waiver.case, str) else waiver.case)
    ]
    for cases in BATTERIES.values():
        for planned in cases(profile):
            if planned.case.skip is None and not any(fnmatchcase(planned.case.id, glob) for glob in excused):
                yield planned


def _is_chosen(case: Case, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(case.id, glob) for glob in globs)


def _spread(planned: Iterable[Planned], most: int) -> list[Planned]:
    """The cheapest, one session after another."""
    ordered = sorted(planned, key=lambda p: (_cost(p.case.spec) * _slowness(p.session), p.case.id))
    first = {p.session.id: p for p in reversed(ordered)}
    ranked = [p for p in ordered if first[p.session.id] is p]
    return (ranked + [p for p in ordered if first[p.session.id] is not p])[:most]


def _might_see(fault: str, planned: Planned) -> bool:
    spec = planned.case.spec
    if fault.startswith(("load-", "evict-")):
        living = isinstance(spec, AdapterLife) and not spec.program.startswith(REFUSED)
        return living or isinstance(spec, FirstRequests)
    if fault.startswith("cache-"):
        return "cache" in spec.check or "radix-cache" in planned.session.id
    if fault.startswith("chunk-"):
        return "chunked-prefill" in planned.session.id or "radix-cache" in planned.session.id
    return planned.case.battery == "multi-lora" or isinstance(spec, DecodeLogprobs)


def _slowness(session: Session) -> float:
    """Engines whose Triton kernels are interpreted take many times as long; kernel sessions are compared among themselves."""
    return _INTERPRETED if session.spec.environment.get("TRITON_INTERPRET") == "1" else 1.0


def _cost(spec: CheckSpec) -> float:
    """About how many tokens are computed; only an order follows from it."""
    match spec:
        case PromptLogprobs(prompt_lengths=lengths):
            return 20.0 * len(lengths) + sum(lengths)
        case MixedBatches(batches=batches) | BatchInvariance(batches=batches):
            return 2.0 * sum(sum(batch.prompt_lengths) + 20.0 * sum(batch.new_tokens) for batch in batches)
        case DecodeLogprobs(prompt_length=length, new_tokens=new) | CacheReuse(prompt_length=length, new_tokens=new):
            return length + 20.0 * new
        case GivenPrompt(tokens=tokens):
            return 20.0 + len(tokens)
        case _:
            heads, lengths = getattr(spec, "query_heads", 1), getattr(spec, "lengths", (1000,))
            return float(heads * sum(lengths))


def _without(rounds: int, known: Sequence[Planned], chosen: Sequence[Planned]) -> Iterator[Planned]:
    """The same cases without a fault: as they are, then with other seeds."""
    asked = {planned.case.id.partition(MARK)[0] for planned in chosen}
    for session, case in known:
        if case.id not in asked or case.battery not in BATTERIES:
            continue
        seed = getattr(case.spec, "seed", None)
        for number in range(rounds if seed is not None else min(rounds, 1)):
            spec = case.spec.model_copy(update={"seed": seed + SEED_STEP * number}) if seed is not None else case.spec
            yield Planned(session, case.model_copy(update={"id": f"{case.id}{MARK}{number}", "spec": spec}))


def _of_process(profile: Profile, fault: InjectedFault) -> Iterator[Planned]:
    """The subject that computes nothing, in a session of its own that ends in the way of the fault."""
    act = ACTS[fault.name].act
    session = Session(
        id=f"null-{fault.name}",
        spec=NullSession(abort_at_end=act is None),
        start_seconds=60.0,
        case_seconds=_NULL_SECONDS,
    )
    case_id = f"process/null/{fault.name}{MARK}{fault.name}"
    spec = NullCheck(act=act or "pass")
    yield Planned(session, Case(id=case_id, session=session.id, spec=spec, faults=(fault,)))
