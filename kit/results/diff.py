"""Compares two runs: what broke, what was mended, which margins shrank beyond noise, and what else was different.

Noise: the margin of a measurement is limit over value (or value over limit). Two runs of one correct stack give other
values, since reductions run in another order; and the limit itself moves with the peer's error. A margin is lost where
it shrank by more than `NOISE`, or than the limit moved, whichever is more. Margins above `AMPLE` are equal: errors that
far inside say nothing.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from kit.measurement import Measurement, Record
from kit.results.bundle import read_run
from kit.results.environment import Environment, environment_of
from kit.results.model import CaseResult, RunResult, Status
from kit.results.stored import ENVIRONMENT_FILE, read_result

NOISE: Final = 1.5
AMPLE: Final = 100.0
_GOOD = (Status.PASSED, Status.WAIVED, Status.UNEXPECTED_PASS)


class Side(Record):
    """One of the two runs."""

    run_id: str
    profile: str
    mode: str
    exit_code: int
    cases: int


class Change(Record):
    """A case whose status is another now."""

    case: str
    before: Status
    after: Status
    reason: str = ""


class LostMargin(Record):
    """A measurement that is nearer to its limit, or further outside, by more than `noise`, the factor for noise."""

    case: str
    measurement: str
    unit: str
    value_before: float
    value_after: float
    margin_before: float
    margin_after: float
    noise: float


class Difference(Record):
    """From `before` to `after`.

    Attributes:
        new_failures: good before (passed, waived, unexpected pass), and not now.
        fixed: the other way round.
        changed: another status, on the same side of that line, or to or from skipped.
        lost_margins: of cases in both runs, worst first.
        added, removed: cases that only one of the runs has.
        environment: what differs, as dotted key to the two values; None where one side does not tell it.
    """

    before: Side
    after: Side
    new_failures: tuple[Change, ...]
    fixed: tuple[Change, ...]
    changed: tuple[Change, ...]
    lost_margins: tuple[LostMargin, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    environment: dict[str, tuple[str | None, str | None]]

    @property
    def worse(self) -> bool:
        """Whether something was lost: a new failure, a margin, a case, or a case that is skipped now."""
        skipped = any(change.after is Status.SKIPPED for change in self.changed)
        return bool(self.new_failures or self.lost_margins or self.removed or skipped)


def compare(
    before: RunResult, after: RunResult, environments: tuple[Environment | None, Environment | None] = (None, None)
) -> Difference:
    """What is different in `after`; without an environment of their own, the results tell theirs."""
    old, new = ({case.id: case for case in result.cases} for result in (before, after))
    pairs = [(old[name], new[name]) for name in old if name in new]
    changes = [
        Change(case=a.id, before=a.status, after=b.status, reason=b.reason or a.reason)
        for a, b in pairs
        if a.status is not b.status
    ]
    broken = [c for c in changes if c.before in _GOOD and c.after not in (*_GOOD, Status.SKIPPED)]
    fixed = [c for c in changes if c.after in _GOOD and c.before not in (*_GOOD, Status.SKIPPED)]
    lost = [margin for a, b in pairs for margin in _lost(a, b)]
    return Difference(
        before=_side(before),
        after=_side(after),
        new_failures=tuple(broken),
        fixed=tuple(fixed),
        changed=tuple(c for c in changes if c not in broken and c not in fixed),
        lost_margins=tuple(sorted(lost, key=lambda m: m.margin_after)),
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        environment=_environment(environments[0] or environment_of(before), environments[1] or environment_of(after)),
    )


def difference_of(before: Path, after: Path) -> Difference:
    """The difference of two results folders or bundles.

    Raises:
        KitError: one of them cannot be read.
    """
    (old, old_environment), (new, new_environment) = _read(before), _read(after)
    return compare(old, new, (old_environment, new_environment))


def _read(path: Path) -> tuple[RunResult, Environment | None]:
    files = read_run(path)
    result = read_result(files, str(path))
    try:
        return result, Environment.model_validate_json(files.get(ENVIRONMENT_FILE, b""))
    except ValidationError:
        return result, None


def _side(result: RunResult) -> Side:
    return Side(
        run_id=result.run_id,
        profile=result.profile.name,
        mode=result.mode,
        exit_code=int(result.exit_code),
        cases=len(result.cases),
    )


def _lost(before: CaseResult, after: CaseResult) -> Iterator[LostMargin]:
    """Judged measurements by name; where a case has a name twice, in order."""
    old = _by_name(before)
    for name, new in _by_name(after).items():
        was = old.get(name)
        if was is None or was.margin is None or new.margin is None or was.limit is None or new.limit is None:
            continue
        noise = max(NOISE, _ratio(was.limit, new.limit))
        if min(was.margin, AMPLE) > noise * min(new.margin, AMPLE):
            yield LostMargin(
                case=after.id,
                measurement=new.name,
                unit=new.unit,
                value_before=was.value,
                value_after=new.value,
                margin_before=was.margin,
                margin_after=new.margin,
                noise=noise,
            )


def _by_name(case: CaseResult) -> dict[tuple[str, int], Measurement]:
    found: dict[tuple[str, int], Measurement] = {}
    for measurement in case.measurements:
        count = sum(name == measurement.name for name, _ in found)
        found[measurement.name, count] = measurement
    return found


def _ratio(a: float, b: float) -> float:
    small, large = sorted((abs(a), abs(b)))
    return large / small if small > 0.0 and (a > 0) == (b > 0) else 1.0


def _environment(before: Environment, after: Environment) -> dict[str, tuple[str | None, str | None]]:
    old, new = _flat(before), _flat(after)
    keys = sorted(old.keys() | new.keys())
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


def _flat(environment: Environment) -> dict[str, str]:
    groups: Mapping[str, Mapping[str, object]] = environment.model_dump(
        include={"kit", "gpu", "image", "host", "packages"}, mode="json"
    )
    return {
        f"{group}.{key}": str(value)
        for group, facts in groups.items()
        for key, value in facts.items()
        if value is not None
    }
