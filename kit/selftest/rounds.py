"""Fault-free rounds: what must be green whatever the seed. One start of an engine answers for many of them."""

from collections.abc import Iterator, Sequence
from typing import Final

from kit.batteries import BATTERIES
from kit.batteries.planned import Planned
from kit.check_spec import FirstRequests
from kit.faults.catalogue import MARK
from kit.plan import SGLangSession
from kit.selftest.cost import cost

SEED_STEP: Final = 1009
"""From one round to the next; far from what any battery takes."""
EDITIONS: Final = 1000
"""Added to the number of a round for the edition of its adapters' weights: programs of an adapter's life draw the first few."""
_MOST = 3000.0
"""About so many tokens a case may cost."""


def first_round(known: Sequence[Planned], asked: set[str]) -> Iterator[Planned]:
    """The cases that were asked under faults, as they are."""
    for session, case in known:
        if case.id in asked and case.battery in BATTERIES:
            yield Planned(session, case.model_copy(update={"id": f"{case.id}{MARK}0"}))


def dealt(numbers: range, known: Sequence[Planned], sessions: set[str]) -> Iterator[Planned]:
    """Each round in an engine of its own turn: a case of every kind that this engine is asked, another one in its next turn.

    Prompts follow from the seed of the round, and the weights of all adapters are drawn anew.

    Args:
        sessions: ids of those that take part; empty means all.
    """
    engines: dict[str, dict[str, list[Planned]]] = {}
    for planned in known:
        if _takes_part(planned) and (not sessions or planned.session.id in sessions):
            engines.setdefault(planned.session.id, {}).setdefault(planned.case.spec.check, []).append(planned)
    for number in numbers if engines else ():
        kinds = list(engines.values())[number % len(engines)]
        for cases in kinds.values():
            yield _in_round(number, cases[number // len(engines) % len(cases)])


def _takes_part(planned: Planned) -> bool:
    """Cases of an engine that have a seed, and take no longer than a few seconds."""
    session, spec = planned.session.spec, planned.case.spec
    if not isinstance(session, SGLangSession) or session.environment.get("TRITON_INTERPRET") == "1":
        return False
    light = not isinstance(spec, FirstRequests) and cost(spec) <= _MOST
    return planned.session.gpus == 1 and planned.case.battery in BATTERIES and hasattr(spec, "seed") and light


def _in_round(number: int, planned: Planned) -> Planned:
    session, case = planned
    spec = case.spec.model_copy(update={"seed": getattr(case.spec, "seed", 0) + SEED_STEP * number})
    edition = EDITIONS + number if number else 0
    return Planned(
        session, case.model_copy(update={"id": f"{case.id}{MARK}{number}", "spec": spec, "edition": edition})
    )
