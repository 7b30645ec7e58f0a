"""What a red case means in plain words, where its measurements tell it: said first, before the numbers."""

import math
from collections.abc import Iterable

from kit.measurement import LimitSource, Measurement

_LITTLE = 0.05
_ANOTHER = 0.5


def in_words(measurements: Iterable[Measurement]) -> str:
    """How an adapter acts that does not act as it should; empty where that is not what is wrong, or not known.

    Nothing is said beside NaN or wrong tokens: the effect is then a consequence.
    """
    known = {measurement.name: measurement for measurement in measurements}
    if any(not m.within and m.source is LimitSource.EXACT for m in known.values()):
        return ""
    effect, off_one, told = known.get("effect"), known.get("effect_slope_off_one"), known.get("effect_slope")
    slope = told.value if told is not None and math.isfinite(told.value) else None
    if effect is not None and not effect.within:
        strength = f": it acts {_times(slope)}" if slope is not None and slope > _LITTLE else ""
        return f"the adapter has {'too little effect' if strength else 'no or too little effect'}{strength}"
    if off_one is None or off_one.within:
        return ""
    if slope is None:
        return "the adapter acts with another strength than it should"
    if slope < _ANOTHER:
        return f"something acts, but not as this adapter should (slope {slope:.2g}): is another adapter in use?"
    return f"the adapter acts {_times(slope)}"


def _times(slope: float) -> str:
    """With as many digits as it takes to differ from 1."""
    digits = 2
    while digits < 9 and round(slope, digits) == 1.0:
        digits += 1
    return f"{slope:.{digits}f} times as strongly as it should"
