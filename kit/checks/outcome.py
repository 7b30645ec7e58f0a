"""What a check returns, and how evidence is written."""

import math
from dataclasses import dataclass, field

from pydantic import JsonValue

from kit.measurement import Measurement


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


def shown(value: float) -> JsonValue:
    """A number for evidence: JSON has no NaN and no infinity, so they become text."""
    return float(value) if math.isfinite(value) else str(value)
