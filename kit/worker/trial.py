"""How a case is answered on a subject whose faults change: once, or in a sweep for the smallest strength that is red."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from kit.checks import CheckResult, run_check
from kit.checks.outcome import with_limits
from kit.evidence import SweepPoint
from kit.faults.switch import SwitchedSubject
from kit.measurement import Measurement, worst
from kit.oracles import limits
from kit.plan import Case, InjectedFault
from kit.subjects import Subject


class Trials:
    """The cases of one session. Where its engine's answers are kept, what upstream's rules are about is measured beside."""

    def __init__(self, switched: SwitchedSubject) -> None:
        self._switched = switched
        self._ask = _asking(switched.under(()))

    def answer(self, case: Case) -> CheckResult:
        """Measure a case; raises what `run_check` raises."""
        if case.sweep:
            return self._swept(case)
        return self._ask(case, self._switched.under(case.faults, case.edition))

    def _swept(self, case: Case) -> CheckResult:
        """Bisection for the smallest red strength, between the largest, which must be red, and no fault, which must not."""
        (fault,) = case.faults
        free = _plainly(case, self._switched.under(()))
        points = [_point(None, free)]
        low, high = -1, len(case.sweep) - 1
        points.append(self._point(case, fault, high))
        while points[1].red and high - low > 1:
            middle = (low + high) // 2
            points.append(self._point(case, fault, middle))
            low, high = (low, middle) if points[-1].red else (middle, high)
        return CheckResult(
            (
                limits.exactly_none("red_without_fault", int(points[0].red), "the same case without the fault"),
                limits.exactly_none("largest_unseen", int(not points[1].red), f"{fault.name}={case.sweep[-1]:g}"),
                *_smallest(points[1:]),
            ),
            {"sweep": [point.as_evidence() for point in points]},
        )

    def _point(self, case: Case, fault: InjectedFault, place: int) -> SweepPoint:
        strength = case.sweep[place]
        faults = (fault.model_copy(update={"strength": strength}),)
        return _point(strength, _plainly(case, self._switched.under(faults)))


def _plainly(case: Case, subject: Subject) -> CheckResult:
    return with_limits(run_check(case.spec, subject), case.limits)


def _point(strength: float | None, result: CheckResult) -> SweepPoint:
    found = worst(result.measurements)
    return SweepPoint(
        strength=strength,
        red=not all(m.within for m in result.measurements),
        measurement=found.name if found else "",
        value=found.value if found else float("nan"),
        limit=found.limit if found else None,
        use=1.0 / found.margin if found and found.margin else None,
    )


def _smallest(points: list[SweepPoint]) -> Iterator[Measurement]:
    """The weakest red and the strongest green strength, as far as there is one."""
    for name, red in (("smallest_seen", True), ("next_below", False)):
        strengths = [point.strength for point in points if point.red is red and point.strength is not None]
        if strengths:
            yield limits.context(name, strengths[-1], "1", "strength of the fault")


def _asking(subject: Subject) -> Callable[[Case, Subject], CheckResult]:
    """How each case is asked. What engines need is imported only where there is one."""
    if getattr(subject, "heard", None) is None:
        return _plainly
    from kit.checks.upstream_rules import UpstreamMeasures
    from kit.subjects.sglang_engine import SGLangSubject

    measures = UpstreamMeasures()

    def ask(case: Case, subject: Subject) -> CheckResult:
        assert isinstance(subject, SGLangSubject) and subject.heard is not None
        subject.heard.clear()
        result = _plainly(case, subject)
        return replace(result, measurements=(*result.measurements, *measures.of(case.spec, subject, subject.heard)))

    return ask
