"""Evidence that a report draws. It travels as JSON among a case's evidence; the key ``plot`` says what it is."""

import json
import math
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from kit.measurement import Record

MOST_POINTS: Final = 320
"""Most values of one series; longer series are told by the largest of each window of neighbours."""


class _Drawn(Record):
    def as_evidence(self) -> JsonValue:
        """As JSON; NaN and infinity as text."""
        value: JsonValue = json.loads(self.model_dump_json())
        return value


class ErrorByPosition(_Drawn):
    """Absolute errors along the positions of one or more prompts, joined.

    Attributes:
        unit: of the errors.
        window: how many neighbouring positions each value stands for; it is the largest of them, NaN if one is.
        starts: 0-based index of the first position of each prompt, before windows.
        served, peer: |served − oracle| and |peer − oracle|, one value per window.
        limit: what the largest served error may be.
    """

    plot: Literal["error-by-position"] = "error-by-position"
    unit: str
    window: int = Field(ge=1)
    starts: tuple[int, ...]
    served: tuple[float, ...] = Field(min_length=1)
    peer: tuple[float, ...]
    limit: float


class SweepPoint(_Drawn):
    """A case under one strength of a fault.

    Attributes:
        strength: None for no fault. red: whether a measurement was outside its limit.
        measurement, value, limit: of the one that decides.
        use: how much of its limit that one uses, above 1 outside; None where the limit is one to be equal to.
    """

    strength: float | None
    red: bool
    measurement: str
    value: float
    limit: float | None
    use: float | None


class LimitUseByHead(_Drawn):
    """How much of its limit the largest error of each head uses: above 1 is outside, NaN where the kernel gave NaN.

    Attributes:
        window: how many neighbouring heads each value stands for; it is the largest of them.
        use: [request][head, or window of heads].
    """

    plot: Literal["limit-use-by-head"] = "limit-use-by-head"
    window: int = Field(ge=1)
    use: tuple[tuple[float, ...], ...] = Field(min_length=1)


Plot = Annotated[ErrorByPosition | LimitUseByHead, Field(discriminator="plot")]
_PLOT: TypeAdapter[Plot] = TypeAdapter(Plot)


def plot_in(value: JsonValue) -> ErrorByPosition | LimitUseByHead | None:
    """The plot that a piece of evidence is; None where it is anything else."""
    if not isinstance(value, dict) or "plot" not in value:
        return None
    try:
        return _PLOT.validate_python(value)
    except ValidationError:
        return None


def window_for(length: int, most: int = MOST_POINTS) -> int:
    """How many neighbours one value must stand for, so that `length` values become at most `most`."""
    return max(1, math.ceil(length / most))


def largest_of_each(values: Sequence[float], window: int) -> tuple[float, ...]:
    """The largest value of every `window` neighbours, to three significant digits; NaN where one of them is NaN."""
    parts = (values[start : start + window] for start in range(0, len(values), window))
    return tuple(float(f"{_largest(part):.3g}") for part in parts)


def _largest(values: Sequence[float]) -> float:
    return math.nan if any(math.isnan(value) for value in values) else max(values)
