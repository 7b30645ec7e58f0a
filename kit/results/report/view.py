"""What the report shows, prepared for the template: order, grouping, and how much detail each case gets."""

import contextlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from kit.measurement import Measurement
from kit.results.model import CaseResult, RunResult, SessionResult, Status
from kit.results.report.evidence import Block, blocks
from kit.results.report.hints import Hints
from kit.results.report.plots import LogScale
from kit.results.report.sentence import RED, clause, graded, plain, telling
from kit.results.report.since import Since
from kit.results.text import capped, describe, factor, number, one_line, printable
from kit.waiver import Waiver

MOST_FULL = 200
"""How many cases get all of their evidence, the gravest first; the others get their measurements, one a line."""
MOST_ROWS = 40
WORST_ROWS = 25
_OPEN_CARDS = 5
_LAST_LINES = 20
_LONGEST_LOG = 6_000
_ENDED_SESSION = (Status.CRASHED, Status.TIMEOUT, Status.ENVIRONMENT)


@dataclass(frozen=True)
class CaseView:
    """One case, in full, or in short with its measurements as `lines`; `reason` is empty where `decisive` says it.

    `plain` says in words what is wrong, where that is known.
    """

    case: CaseResult
    anchor: str
    full: bool
    open: bool
    decisive: str
    margin: str
    reason: str
    when: str = ""
    since: str = ""
    log: str = ""
    log_tail: str = ""
    log_before: str = ""
    hints: tuple[str, ...] = ()
    evidence: tuple[Block, ...] = ()
    lines: str = ""
    plain: str = ""


@dataclass(frozen=True)
class Bundle:
    """Cases that share a status and its reason and measured nothing: told once, each by its id."""

    first: CaseView
    cases: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Group:
    """A heading and what stands below it."""

    title: str
    status: str
    open: bool
    count: int
    items: tuple[CaseView | Bundle, ...]


@dataclass(frozen=True)
class MarginRow:
    """One case in the margin plot; `margin` is None where nothing was judged."""

    anchor: str
    id: str
    status: str
    margin: float | None
    label: str


@dataclass(frozen=True)
class SessionView:
    """Times of a session, in seconds."""

    session: SessionResult
    start: float
    work: float
    cases: int
    slowest: str


@dataclass(frozen=True)
class WaiverView:
    """A waiver as of the day of the run."""

    waiver: Waiver
    days_left: int
    cases: tuple[tuple[str, str], ...]


def plotted_margin(measurement: Measurement | None) -> float | None:
    """The margin as it is drawn: exact limits are infinitely far inside, or at the far end outside."""
    if measurement is None:
        return None
    margin, within = measurement.margin, measurement.within
    if margin is None or (margin >= 1.0) != within:
        return math.inf if within else 0.0
    return margin


def margin_text(measurement: Measurement | None) -> str:
    """The margin as it is read."""
    if measurement is None:
        return "not judged"
    if measurement.margin is None:
        return "exact" if measurement.within else "not exact"
    return "NaN" if math.isnan(measurement.value) else factor(measurement.margin)


def instant(seconds: float) -> str:
    """Seconds since the epoch as a reader's UTC time."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "unknown"


def duration(seconds: float) -> str:
    """``1.2 s``, ``3 min 05 s``, ``2 h 04 min``."""
    if not math.isfinite(seconds) or seconds < 0:
        return "unknown"
    if seconds < 60:
        return f"{number(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def short_line(measurement: Measurement) -> str:
    """One measurement of a case that is told in short."""
    mark = ("·" if measurement.within else "✗") if measurement.judged else " "
    return f"{mark} {clause(measurement)}"


def _tail(session: SessionResult) -> tuple[str, str]:
    """The end of a session's log: the lines before the last ones, and those."""
    lines = capped(session.log_tail.strip("\n"), _LONGEST_LOG, session.log).splitlines()
    return "\n".join(lines[:-_LAST_LINES]), "\n".join(lines[-_LAST_LINES:])


class View:
    """All that the template asks for; `since` compares with an earlier run where one was given."""

    def __init__(self, result: RunResult, before: RunResult | None = None) -> None:
        self.result = result
        self.since = Since(result, before) if before is not None else None
        self.telling = [telling(case) for case in result.cases]
        grades = [graded(case.status, found) for case, found in zip(result.cases, self.telling, strict=True)]
        self.ranked = sorted(range(len(result.cases)), key=grades.__getitem__)
        self._full = set(self.ranked[:MOST_FULL])
        self._hints = Hints(result)
        self._sessions = {session.id: session for session in result.sessions}

    @property
    def short(self) -> int:
        """How many cases are told in short."""
        return len(self.result.cases) - len(self._full)

    @property
    def full_count(self) -> int:
        """How many cases are told in full."""
        return len(self._full)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """What did not pass first, from the gravest on; then waived, skipped, and what passed by battery."""
        cases = self.result.cases
        red = [i for i in self.ranked if cases[i].status in RED or cases[i].status is Status.UNEXPECTED_PASS]
        groups = [self._group("Not passed", "red", red, True)]
        for status, title in ((Status.WAIVED, "Failed and waived"), (Status.SKIPPED, "Skipped")):
            groups.append(self._group(title, status.value, [i for i in self.ranked if cases[i].status is status], True))
        passed = [i for i, case in enumerate(cases) if case.status is Status.PASSED]
        by_battery: dict[str, list[int]] = {}
        for index in passed:
            by_battery.setdefault(cases[index].battery, []).append(index)
        for battery, members in by_battery.items():
            groups.append(self._group(f"Passed: {battery}", "passed", members, len(passed) <= MOST_ROWS))
        return tuple(group for group in groups if group.items)

    def _group(self, title: str, status: str, indices: Sequence[int], opened: bool) -> Group:
        alike: dict[object, list[int]] = {}
        for index in indices:
            case = self.result.cases[index]
            key = (case.status, case.reason) if case.reason and not case.measurements and not case.evidence else index
            alike.setdefault(key, []).append(index)
        items: list[CaseView | Bundle] = []
        for members in alike.values():
            first = self._case(members[0], status == "red" and len(items) < _OPEN_CARDS)
            if len(members) == 1:
                items.append(first)
            else:
                items.append(Bundle(first, tuple((anchor(i), self.result.cases[i].id) for i in members)))
        return Group(title, status, opened, len(indices), tuple(items))

    def _case(self, index: int, opened: bool) -> CaseView:
        case = self.result.cases[index]
        worst = self.telling[index]
        decisive = clause(worst).partition(", margin")[0] if worst else ""
        reason = "" if worst and case.reason == one_line(describe(worst)) else case.reason
        if index not in self._full:
            lines = "\n".join(short_line(measurement) for measurement in case.measurements)
            return CaseView(
                case, anchor(index), False, opened, decisive, margin_text(worst), reason, lines=lines, plain=plain(case)
            )
        session = self._sessions.get(case.session)
        before, tail = _tail(session) if session and case.status in _ENDED_SESSION else ("", "")
        return CaseView(
            case=case,
            anchor=anchor(index),
            full=True,
            open=opened,
            decisive=decisive,
            margin=margin_text(worst),
            reason=reason,
            when=self._when(case),
            since=self.since.of(case) if self.since else "",
            log=session.log if session else "",
            log_tail=tail,
            log_before=before,
            hints=self._hints.of(case),
            evidence=blocks(case.evidence),
            plain=plain(case),
        )

    def _when(self, case: CaseResult) -> str:
        if case.started is None:
            return "never started"
        text = f"started {instant(case.started)}, {duration(max(case.started - self.result.started, 0.0))} into the run"
        return text if case.seconds is None else f"{text}; took {duration(case.seconds)}"

    @cached_property
    def scale(self) -> LogScale:
        """The axis of the margin plot."""
        return LogScale.of_margins(m for m in self.margins if 0.0 < m < math.inf)

    @cached_property
    def margins(self) -> tuple[float, ...]:
        """Of all cases that judged something."""
        found = map(plotted_margin, self.telling)
        return tuple(margin for margin in found if margin is not None)

    @cached_property
    def margin_rows(self) -> tuple[MarginRow, ...]:
        """All cases, or the worst where they are many."""
        if len(self.ranked) <= MOST_ROWS:
            chosen = self.ranked
        else:
            judged = [i for i in self.ranked if self.telling[i] is not None]
            chosen = judged[:WORST_ROWS]
        return tuple(self._row(index) for index in chosen)

    def _row(self, index: int) -> MarginRow:
        case = self.result.cases[index]
        worst = self.telling[index]
        margin = plotted_margin(worst)
        label = margin_text(worst) if margin is not None else case.status.value
        return MarginRow(anchor(index), case.id, case.status.value, margin, label)

    @cached_property
    def lead(self) -> tuple[CaseView | Bundle, ...]:
        """The gravest of what did not pass, for the top of the page."""
        red = next((group for group in self.groups if group.status == "red"), None)
        return red.items[:3] if red else ()

    @cached_property
    def sessions(self) -> tuple[SessionView, ...]:
        """Sessions with their times."""
        views = []
        for session in self.result.sessions:
            timed = [(c.seconds, c.id) for c in self.result.cases if c.session == session.id and c.seconds is not None]
            slowest = max(timed, default=None)
            text = f"{slowest[1]}, {duration(slowest[0])}" if slowest else ""
            work = sum(seconds for seconds, _ in timed)
            views.append(SessionView(session, session.ready_seconds or 0.0, work, len(timed), text))
        return tuple(views)

    @property
    def longest_session(self) -> float:
        """Seconds, for the scale of the bars."""
        return max((view.start + view.work for view in self.sessions), default=1.0)

    @cached_property
    def waivers(self) -> tuple[WaiverView, ...]:
        """Waivers that had a say, the one that ends first above."""
        today = datetime.fromtimestamp(self.result.finished, UTC).date()
        views = []
        for waiver in sorted(self.result.waivers, key=lambda w: w.expires):
            used = tuple((anchor(i), c.id) for i, c in enumerate(self.result.cases) if c.waiver == waiver.id)
            views.append(WaiverView(waiver, (waiver.expires - today).days, used))
        return tuple(views)

    @property
    def devices(self) -> tuple[str, ...]:
        """What the sessions saw as their device."""
        known = [session.facts for session in self.result.sessions if "device" in session.facts]
        seen = [f["device"] + (f" ({f['architecture']})" if "architecture" in f else "") for f in known]
        return tuple(dict.fromkeys(seen))

    @property
    def software(self) -> str:
        """Versions that a reader asks for first."""
        facts: dict[str, str] = {}
        for source in (self.result.worker, *(session.facts for session in self.result.sessions)):
            facts |= {k: v for k, v in source.items() if k in _FIRST_ASKED}
        return ", ".join(f"{name} {facts[name]}" for name in _FIRST_ASKED if name in facts)


_FIRST_ASKED = ("sglang", "torch", "triton", "rocm", "cuda", "driver", "transformers", "peft", "python")


def anchor(index: int) -> str:
    """The fragment of a case, by its place in the result."""
    return f"c{index}"


def facts(pairs: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    """Facts as (name, text, long text): settings that are JSON are indented and folded."""
    for name, value in pairs.items():
        if value.startswith("{") and len(value) > 100:
            with contextlib.suppress(ValueError):
                value = json.dumps(json.loads(value), indent=1, ensure_ascii=False)
            yield name, "", value
        else:
            yield name, printable(value), ""
