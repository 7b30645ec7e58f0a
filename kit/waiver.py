"""Waivers: dated excuses for one known failure on one kind of hardware (``profiles/waivers.toml``).

A waived case is run and measured like any other. A waiver covers a case that failed or crashed; it never covers a case
that was not measured for another reason (timeout, missing, environment), because nothing is known about such a case.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, model_validator

from kit.measurement import Measurement, Record
from kit.names import case_glob, unknown
from kit.paths import data_folder
from kit.toml import load_toml

LONGEST = timedelta(days=90)


def _case_globs(case: str | tuple[str, ...]) -> str | tuple[str, ...]:
    for glob in (case,) if isinstance(case, str) else case:
        case_glob(glob)
    return case


def _specifier(text: str) -> str:
    try:
        bounds = SpecifierSet(text)
    except InvalidSpecifier:
        bounds = SpecifierSet()
    if not len(bounds):
        raise ValueError("expected version bounds such as '>=10,<11'")
    return text


class Expected(Record):
    """The known failure in numbers: the range in which a measurement that is outside its limit must lie.

    Attributes:
        measurement: its name, such as ``max_abs_error``.
        at_least, at_most: bounds of its value, inclusive; at least one of them, or `nan`.
        nan: NaN is the known failure.
    """

    measurement: str = Field(min_length=1)
    at_least: float | None = None
    at_most: float | None = None
    nan: bool = False

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.at_least is None and self.at_most is None and not self.nan:
            raise ValueError(f"expected {self.measurement}: give at_least, at_most or nan")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"expected {self.measurement}: at_least is above at_most")
        return self

    def holds(self, value: float) -> bool:
        """Whether `value` is the known failure."""
        if math.isnan(value):
            return self.nan
        if self.at_least is None and self.at_most is None:
            return False
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


class Waiver(Record):
    """One waiver.

    Attributes:
        id: unique, named in every report that uses it.
        case: glob of case ids, or several that fail for the same reason; the battery in each is literal.
        architecture: glob of architectures as profiles name them, such as ``gfx942``.
        versions: bounds per software, named as in the facts of a session, such as ``rocm = ">=10,<11"``; all must hold,
            and software whose version is not known holds none.
        reason: what fails, and why that is known.
        link: where it is tracked.
        opened: first day on which it counts.
        expires: last day on which it counts, at most 90 days after `opened`.
        expected: the known failure in numbers. Where given, every measurement outside its limit must be named here and
            lie in its range; anything else, a crash included, is a different failure and is not covered.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    case: Annotated[str | Annotated[tuple[str, ...], Field(min_length=1)], AfterValidator(_case_globs)]
    architecture: str = Field(min_length=1)
    versions: dict[str, Annotated[str, AfterValidator(_specifier)]] = Field(default_factory=dict)
    reason: str = Field(min_length=10)
    link: str = Field(pattern=r"^https://\S+$")
    opened: date
    expires: date
    expected: tuple[Expected, ...] = ()

    @model_validator(mode="after")
    def _dated(self) -> Self:
        if not self.opened <= self.expires <= self.opened + LONGEST:
            raise ValueError(
                f"waiver {self.id}: expires must be at most {LONGEST.days} days after opened, and not before it"
            )
        return self

    @property
    def globs(self) -> tuple[str, ...]:
        """`case`, always as several."""
        return (self.case,) if isinstance(self.case, str) else self.case

    def about(self, case_id: str) -> bool:
        """Whether this waiver is about that case, whatever the hardware, the software and the day."""
        return any(fnmatchcase(case_id, glob) for glob in self.globs)

    def covers(self, case_id: str, architecture: str, facts: Mapping[str, str]) -> bool:
        """Whether this waiver is about that case on that hardware and software, whatever the day."""
        return (
            self.about(case_id)
            and fnmatchcase(architecture, self.architecture)
            and all(_holds(bounds, facts.get(software)) for software, bounds in self.versions.items())
        )

    def excuses(self, measurements: Sequence[Measurement]) -> bool:
        """Whether a failure with these measurements is the known one."""
        if not self.expected:
            return True
        outside = [m for m in measurements if not m.within]
        return bool(outside) and all(
            any(e.measurement == m.name and e.holds(m.value) for e in self.expected) for m in outside
        )


def _holds(bounds: str, version: str | None) -> bool:
    try:
        return version is not None and SpecifierSet(bounds).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def software_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """`facts`, with the ROCm release under ``rocm`` where only torch's version tells it (``2.11.0+rocm10.0.0``)."""
    built_for = re.search(r"\+rocm(\d+(?:\.\d+)*)", facts.get("torch", ""))
    return {"rocm": built_for[1], **facts} if built_for else dict(facts)


class WaiverMatch(NamedTuple):
    """A waiver that is about a case, whether its time is over, and whether the case failed as it expects."""

    waiver: Waiver
    expired: bool
    excuses: bool = True


class Waivers(Record):
    """All waivers of a file; ids are unique."""

    waiver: tuple[Waiver, ...] = ()

    @model_validator(mode="after")
    def _unique(self) -> Self:
        ids = [waiver.id for waiver in self.waiver]
        if twice := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"two waivers are called {twice[0]}")
        return self

    def named(self, ids: Sequence[str] | None) -> "Waivers":
        """Those with these ids; all of them for None.

        Raises:
            UsageFault: an id that no waiver has.
        """
        if ids is None:
            return self
        known = {waiver.id for waiver in self.waiver}
        if strange := [name for name in ids if name not in known]:
            raise unknown("waiver", strange[0], known)
        return Waivers(waiver=tuple(waiver for waiver in self.waiver if waiver.id in ids))

    def find(
        self,
        case_id: str,
        architecture: str,
        facts: Mapping[str, str],
        today: date,
        measurements: Sequence[Measurement] = (),
    ) -> WaiverMatch | None:
        """The waiver of a case: one that expects these measurements, else any, else None; the last to expire."""
        covering = [
            WaiverMatch(w, w.expires < today, w.excuses(measurements))
            for w in self.waiver
            if w.opened <= today and w.covers(case_id, architecture, facts)
        ]
        return max(covering, key=lambda match: (match.excuses, match.waiver.expires), default=None)


def load_waivers(path: Path | None = None) -> Waivers:
    """The waivers of a file, by default ``profiles/waivers.toml``.

    Raises:
        UsageFault: a damaged file, a wrong key or date, or an id that two waivers claim.
    """
    return load_toml(path or data_folder("profiles") / "waivers.toml", Waivers)
