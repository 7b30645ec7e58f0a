"""Measurements: a verdict follows from these alone."""

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator


class Record(BaseModel):
    """Base of everything that crosses a process boundary: immutable, no unknown keys, NaN and infinity kept as strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Comparison(StrEnum):
    """How a value is held against its limit."""

    AT_MOST = "<="
    AT_LEAST = ">="
    EQUAL = "=="


class LimitSource(StrEnum):
    """Where a limit comes from (docs/limits.md)."""

    UPSTREAM = "upstream"
    PEER = "peer"
    EXACT = "exact"
    EFFECT = "effect"
    PROFILE = "profile"
    ARCHITECTURE = "architecture"
    BUDGET = "budget"


class Measurement(Record):
    """One number of a case, and the limit that it is held against.

    A measurement without comparison is context: it is reported and never judged.

    Attributes:
        name: what was measured, such as ``max_abs_error``.
        value: the number, in `unit`. NaN is never within a limit.
        unit: ``nat``, ``nat²``, ``1`` (dimensionless), ``count``, ``s``.
        comparison, limit, source: all three set, or none.
        note: one clause on how the limit was formed, such as ``2 × peer 1.1e-06 + floor 9.5e-07``.
        where: where the value comes from, such as ``batch 0 row 3 (adapter-1), token 7: -9.12, by the oracle -5.9``; empty where that
            is the whole case.
    """

    name: str
    value: float
    unit: str = "1"
    comparison: Comparison | None = None
    limit: float | None = None
    source: LimitSource | None = None
    note: str = ""
    where: str = ""

    @model_validator(mode="after")
    def _judged_or_context(self) -> Self:
        given = [self.comparison is not None, self.limit is not None, self.source is not None]
        if any(given) and not all(given):
            raise ValueError(f"measurement {self.name}: comparison, limit and source go together")
        if self.limit is not None and math.isnan(self.limit):
            raise ValueError(f"measurement {self.name}: the limit is NaN")
        return self

    @property
    def judged(self) -> bool:
        """Whether a verdict depends on this measurement."""
        return self.comparison is not None

    @property
    def within(self) -> bool:
        """Whether the value keeps its limit; True for context, False for NaN."""
        if self.comparison is None or self.limit is None:
            return True
        if math.isnan(self.value):
            return False
        match self.comparison:
            case Comparison.AT_MOST:
                return self.value <= self.limit
            case Comparison.AT_LEAST:
                return self.value >= self.limit
            case Comparison.EQUAL:
                return self.value == self.limit

    @property
    def margin(self) -> float | None:
        """How far the value is from its limit, as a factor: above 1 inside, below 1 outside; None for context and `EQUAL`."""
        if self.comparison is None or self.limit is None or self.comparison is Comparison.EQUAL:
            return None
        if math.isnan(self.value):
            return 0.0
        inner, outer = (self.value, self.limit) if self.comparison is Comparison.AT_MOST else (self.limit, self.value)
        if inner == 0.0:
            return math.inf
        return outer / inner


def worst(measurements: Iterable[Measurement]) -> Measurement | None:
    """The judged measurement that decides: outside before inside, then the smallest margin; None without one."""

    def rank(m: Measurement) -> tuple[bool, float]:
        return m.within, m.margin if m.margin is not None else (float("inf") if m.within else 0.0)

    return min((m for m in measurements if m.judged), key=rank, default=None)
