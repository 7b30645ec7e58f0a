"""What a check returns, and how evidence is written."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from kit.measurement import Comparison, LimitSource, Measurement
from kit.plan import OtherLimit


class NotApplicable(Exception):
    """The case does not apply to what the session has; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class CheckResult:
    """Measurements of one case, and what helps to understand it when it is red."""

    measurements: tuple[Measurement, ...]
    evidence: dict[str, JsonValue] = field(default_factory=dict)


def with_limits(result: CheckResult, limits: Sequence[OtherLimit]) -> CheckResult:
    """The result, held against the limits that this hardware has instead of the check's own.

    Raises:
        ValueError: a limit for what the check does not judge, or judges by being equal.
    """
    other = {limit.measurement: limit for limit in limits}
    judged = {m.name for m in result.measurements if m.comparison not in (None, Comparison.EQUAL)}
    if strange := sorted(other.keys() - judged):
        told = ", ".join(sorted(judged)) or "nothing"
        raise ValueError(f"the profile has a limit for {strange[0]}, and this case holds only {told} against a bound")
    return replace(result, measurements=tuple(_with_limit(m, other.get(m.name)) for m in result.measurements))


def _with_limit(measurement: Measurement, other: OtherLimit | None) -> Measurement:
    if other is None:
        return measurement
    note = f"instead of {measurement.limit:g} ({measurement.source}): {other.reason} {other.link}"
    return measurement.model_copy(update={"limit": other.limit, "source": LimitSource.PROFILE, "note": note})


def shown(value: float) -> JsonValue:
    """A number for evidence: JSON has no NaN and no infinity, so they become text."""
    return float(value) if math.isfinite(value) else str(value)
