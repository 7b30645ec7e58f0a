"""Since when: this run beside an earlier one of the same profile."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from kit.measurement import Measurement
from kit.results.model import CaseResult, RunResult, Status
from kit.results.report.sentence import telling
from kit.results.text import factor

_LOST = 2.0
"""A margin that shrank by this factor is told."""
_CHANGES_EVERY_RUN = {"pid", "container"}


@dataclass(frozen=True)
class Change:
    """One row of a comparison."""

    what: str
    then: str
    now: str


@dataclass(frozen=True)
class Since:
    """`now` beside the earlier run `before`."""

    now: RunResult
    before: RunResult

    @cached_property
    def _then(self) -> dict[str, CaseResult]:
        return {case.id: case for case in self.before.cases}

    @property
    def title(self) -> str:
        """Which run it is compared with."""
        day = datetime.fromtimestamp(self.before.started, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"{self.before.run_id} of {day}"

    def of(self, case: CaseResult) -> str:
        """What became of a case then, as the rest of a sentence "Since when: …"."""
        then = self._then.get(case.id)
        if then is None:
            return f"not known, as it was not part of run {self.title}"
        found = telling(then)
        margin = f" with margin {factor(found.margin)}" if found and found.margin is not None else ""
        if then.status is case.status:
            return f"{then.status} already in run {self.title}{margin}"
        return f"still {then.status} in run {self.title}{margin}; it changed after that"

    @cached_property
    def facts(self) -> tuple[Change, ...]:
        """Machine, image and software that differ: what may be the cause."""
        then, now = _facts(self.before), _facts(self.now)
        names = [name for name in dict.fromkeys((*now, *then)) if name.rpartition(": ")[2] not in _CHANGES_EVERY_RUN]
        return tuple(Change(n, then.get(n, "–"), now.get(n, "–")) for n in names if then.get(n) != now.get(n))

    @cached_property
    def cases(self) -> tuple[Change, ...]:
        """Cases whose status changed, and margins that shrank to less than half."""
        changes = []
        for case in self.now.cases:
            then = self._then.get(case.id)
            if then is not None and (then.status is not case.status or _shrank(telling(then), telling(case))):
                changes.append(Change(case.id, _told(then), _told(case)))
        present = {case.id for case in self.now.cases}
        changes += [Change(c.id, _told(c), "not planned") for c in self.before.cases if c.id not in present]
        changes.sort(key=lambda change: change.now.startswith(Status.PASSED.value))
        return tuple(changes)


def _facts(result: RunResult) -> Mapping[str, str]:
    groups = {"image": result.image, "host": result.host, "worker": result.worker}
    groups |= {session.id: session.facts for session in result.sessions}
    own = {"profile": result.profile.name, "kit": result.kit_version, "runtime": result.runtime or "none"}
    return own | {f"{group}: {name}": value for group, pairs in groups.items() for name, value in pairs.items()}


def _shrank(then: Measurement | None, now: Measurement | None) -> bool:
    if then is None or now is None or then.margin is None or now.margin is None:
        return False
    return now.margin * _LOST < then.margin


def _told(case: CaseResult) -> str:
    found = telling(case)
    return case.status.value + (f", {found.name} {factor(found.margin)}" if found and found.margin is not None else "")
