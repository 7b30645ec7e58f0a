"""Sweeps: the smallest strength of a fault that a case sees, per dtype. The worker looks for it (`kit.worker.trial`)."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import ValidationError

from kit.attention_spec import Extend, GroupedDecode, Prefill
from kit.batteries.planned import Planned
from kit.check_spec import PromptLogprobs
from kit.errors import UsageFault
from kit.evidence import SweepPoint
from kit.faults.catalogue import FAULTS, MARK, SWEEP
from kit.faults.kind import FaultKind
from kit.measurement import Record
from kit.names import unknown
from kit.plan import InjectedFault
from kit.results.model import CaseResult

STEPS: Final = (1.0, 1.5, 2.2, 3.3, 4.7, 6.8)
"""Of each decade, as in the E6 series of IEC 60063: each about 1.5 times the one before."""
DECADES: Final = 7


def ladder(kind: FaultKind) -> tuple[float, ...]:
    """The strengths of a fault, the weakest first: as reported, and seven decades nearer to the one that changes nothing.

    A cap is weaker where it is larger, so its strengths are decades above the reported one.
    """
    assert kind.reported is not None and kind.neutral is not None
    parts = [step * 10.0**-decade for decade in range(DECADES, 0, -1) for step in STEPS] + [1.0]
    if kind.neutral_is_infinite:
        return tuple(float(f"{kind.reported / part:.6g}") for part in parts if kind.reported / part < 1e6)
    return tuple(kind.neutral + (kind.reported - kind.neutral) * part for part in parts)


def kinds_to_sweep(names: Sequence[str]) -> list[FaultKind]:
    """The faults named, or for ``all`` those that have a strength.

    Raises:
        UsageFault: an unknown fault, or one without a strength.
    """
    strong = {name: kind for name, kind in FAULTS.items() if kind.reported is not None}
    chosen = list(strong) if "all" in names else list(dict.fromkeys(names))
    for name in chosen:
        if name not in FAULTS:
            raise unknown("fault", name, FAULTS)
        if name not in strong:
            raise UsageFault(f"the fault '{name}' has no strength to sweep", f"choose of {', '.join(strong)}")
    return [strong[name] for name in chosen]


def swept(kind: FaultKind, candidates: Sequence[Planned]) -> Iterator[Planned]:
    """Two cases of each dtype, each to be swept: that of the most prompt tokens of an adapter, and the first of another kind."""
    fault = InjectedFault(name=kind.name, strength=kind.reported or 1.0)
    for dtype in dict.fromkeys(map(dtype_of, candidates)):
        own = [planned for planned in candidates if dtype_of(planned) == dtype]
        first = max(own, key=_prompt_tokens)
        other = next((planned for planned in own if planned.case.spec.check != first.case.spec.check), None)
        for session, case in filter(None, (first, other)):
            changed = {
                "id": f"{case.id}{MARK}{SWEEP}{kind.name}:{dtype}",
                "faults": (fault,),
                "sweep": ladder(kind),
            }
            yield Planned(session, case.model_copy(update=changed))


def _prompt_tokens(planned: Planned) -> int:
    """Of prompts of an adapter: the more there are, the smaller an error of scaling is seen."""
    spec = planned.case.spec
    return sum(spec.prompt_lengths) if isinstance(spec, PromptLogprobs) and spec.adapter is not None else 0


def dtype_of(planned: Planned) -> str:
    """In which dtype a case's answers are computed."""
    spec = planned.case.spec
    if isinstance(spec, GroupedDecode | Extend | Prefill):
        return spec.dtype
    return str(getattr(planned.session.spec, "dtype", "float32"))


class SweepOutcome(Record):
    """One case that was swept.

    Attributes:
        fault, dtype, case: what was asked. status: of the case.
        smallest: the weakest strength that was red; None where none was. deviation: how far it is from the strength that changes
            nothing. measurement, margin: what decided there, and how many times its limit it was.
        below: the strongest strength that was green, with the part of its limit that decided; None where all were red.
        free: without the fault, the part of its limit that decided.
        answers: how often the case was asked.
    """

    fault: str
    dtype: str
    case: str
    status: str
    smallest: float | None
    deviation: float | None
    measurement: str = ""
    margin: float | None = None
    below: float | None = None
    margin_below: float | None = None
    free: float | None = None
    answers: int = 0


def sweep_outcome(result: CaseResult) -> SweepOutcome:
    """What came of a swept case; nothing but its status where it gave no verdict."""
    case, _, mark = result.id.partition(MARK)
    fault, _, dtype = mark.removeprefix(SWEEP).partition(":")
    kind = FAULTS[fault]
    points = _points(result)
    of_fault = [point for point in points if point.strength is not None]
    red = [point for point in of_fault if point.red]
    green = [point for point in of_fault if not point.red]
    weakest = min(red, key=lambda p: _strength(kind, p), default=None)
    strongest = max(green, key=lambda p: _strength(kind, p), default=None)
    return SweepOutcome(
        fault=fault,
        dtype=dtype,
        case=case,
        status=result.status.value,
        smallest=weakest.strength if weakest else None,
        deviation=_deviation(kind, weakest) if weakest else None,
        measurement=weakest.measurement if weakest else "",
        margin=_finite(weakest),
        below=strongest.strength if strongest else None,
        margin_below=_finite(strongest),
        free=next((_finite(point) for point in points if point.strength is None), None),
        answers=len(points),
    )


def _points(result: CaseResult) -> list[SweepPoint]:
    told = result.evidence.get("sweep")
    try:
        return [SweepPoint.model_validate(point) for point in told] if isinstance(told, list) else []
    except ValidationError:
        return []


def _strength(kind: FaultKind, point: SweepPoint) -> float:
    """Larger for a stronger fault."""
    strength = point.strength or 0.0
    return -strength if kind.neutral_is_infinite else abs(strength - (kind.neutral or 0.0))


def _deviation(kind: FaultKind, point: SweepPoint) -> float | None:
    return None if kind.neutral_is_infinite else _strength(kind, point)


def _finite(point: SweepPoint | None) -> float | None:
    return None if point is None or point.use is None or not math.isfinite(point.use) else point.use
