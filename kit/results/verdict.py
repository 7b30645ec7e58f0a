"""From a plan and what was reported to the result of a run. Pure: no clock, no file, no environment.

A verdict follows from measurements alone, and every planned case gets one: where nothing was reported, the reason says
what happened to the session, the worker or the container that should have reported it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from math import isinf

from pydantic import JsonValue

from kit import __version__
from kit.events import AnyEvent, CaseFailedToRun, CaseFinished, CaseSkipped, Trouble
from kit.measurement import Measurement, worst
from kit.plan import Case, Plan
from kit.profile import Profile
from kit.results.gaps import problems_of, warnings_of
from kit.results.model import (
    CaseResult,
    Mode,
    ProfileFacts,
    RunResult,
    SessionResult,
    Status,
    exit_code_of,
    log_file,
)
from kit.results.plain import in_words
from kit.results.text import describe, one_line
from kit.results.trace import TOLD, CaseEnd, CaseTrace, Trace, read_trace
from kit.waiver import Waiver, Waivers, software_facts


@dataclass(frozen=True)
class _Finding:
    """A case before waivers. `excusable`: a waiver may cover it, since the subject itself failed or crashed."""

    status: Status
    reason: str = ""
    excusable: bool = False
    measurements: tuple[Measurement, ...] = ()
    evidence: dict[str, JsonValue] = field(default_factory=dict)
    seconds: float | None = None
    waiver: Waiver | None = None


def judge(
    plan: Plan,
    profile: Profile,
    *,
    mode: Mode,
    worker_events: Iterable[AnyEvent],
    host_events: Iterable[AnyEvent],
    waivers: Waivers,
    today: date,
    started: float,
    finished: float,
    damaged: int = 0,
    image: Mapping[str, str] | None = None,
    host: Mapping[str, str] | None = None,
) -> RunResult:
    """The result of a run, whatever came of it.

    Args:
        worker_events, host_events: the events of ``events.jsonl`` and ``host.jsonl``, in the order of the files.
        today: the day on which waivers must be valid.
        started, finished: seconds since the epoch (UTC).
        damaged: lines of both files that were no event; each may have been anything, so one makes the run incomplete.
        image, host: facts that the host knows; the host's event `RuntimeStarted` adds to the latter.
    """
    if plan.profile != profile.name:
        raise ValueError(f"the plan is for profile {plan.profile}, not {profile.name}")
    trace = read_trace(plan, worker_events, host_events)
    host_facts = {**(host or {}), **(trace.runtime.facts if trace.runtime else {})}
    worker_facts = dict(trace.worker.facts) if trace.worker else {}
    base_facts = {**(image or {}), **host_facts, **worker_facts}

    found = _findings(plan, trace)
    cases = []
    used: dict[str, Waiver] = {}
    for case, finding in zip(plan.cases, found, strict=True):
        ready = trace.sessions[case.session].ready
        facts = software_facts({**base_facts, **(ready.facts if ready else {})})
        waived = _with_waiver(case, finding, waivers, profile.architecture, facts, today)
        if waived.waiver:
            used[waived.waiver.id] = waived.waiver
        cases.append(_case_result(case, waived, trace.cases[case.id]))

    problems = problems_of(plan, profile, mode, trace, cases, damaged, used.values(), today)
    return RunResult(
        kit_version=__version__,
        run_id=plan.run_id,
        profile=ProfileFacts(
            name=profile.name,
            title=profile.title,
            vendor=profile.vendor,
            architecture=profile.architecture,
            gpus=profile.gpus,
            image=profile.image,
            mandatory=profile.mandatory,
        ),
        mode=mode,
        runtime=trace.runtime.runtime if trace.runtime else None,
        image=dict(image or {}),
        host=host_facts,
        worker=worker_facts,
        does_not_prove=profile.does_not_prove,
        faults=plan.injected,
        sessions=_session_results(plan, trace),
        cases=tuple(cases),
        omitted=plan.omitted,
        waivers=tuple(used.values()),
        problems=problems,
        warnings=warnings_of(plan, trace, cases, used.values(), today),
        damaged_lines=damaged,
        started=started,
        finished=finished,
        interrupted=trace.interrupted,
        exit_code=exit_code_of(mode, cases, problems, trace.interrupted),
    )


def _findings(plan: Plan, trace: Trace) -> list[_Finding]:
    planned = Counter(case.id for case in plan.cases)
    first_of = {case.session: case.id for case in reversed(plan.cases) if case.skip is None}
    found = [_finding(case, trace, planned[case.id], case.id == first_of.get(case.session)) for case in plan.cases]
    return _with_late_deaths(plan, trace, found)


def _finding(case: Case, trace: Trace, planned: int, first: bool) -> _Finding:
    told = trace.cases[case.id]
    if planned > 1:
        return _Finding(Status.FAILED, f"planned {planned} times under one id")
    if told.strangers:
        return _Finding(
            Status.FAILED, f"reported by session {told.strangers[0]}, which is not its own ({case.session})"
        )
    if case.skip is not None:
        if told.starts or told.ends:
            return _Finding(Status.FAILED, f"was to be skipped ({case.skip}), yet session {case.session} ran it")
        return _Finding(Status.SKIPPED, one_line(case.skip))
    if len(told.ends) > 1 or len(told.starts) > 1:
        times = max(len(told.ends), len(told.starts))
        report = _reported(told.ends[0]) if told.ends else _Finding(Status.FAILED)
        return replace(report, status=Status.FAILED, reason=f"reported {times} times", excusable=False)
    if told.ends:
        return _reported(told.ends[0])
    return _unreported(case, trace, first)


def _reported(end: CaseEnd) -> _Finding:
    match end:
        case CaseFinished():
            return replace(_measured(end.measurements), evidence=end.evidence, seconds=end.seconds)
        case CaseSkipped():
            return _Finding(Status.SKIPPED, one_line(end.reason))
        case CaseFailedToRun():
            status = Status(end.trouble)
            return _Finding(status, one_line(end.reason), status is Status.CRASHED, seconds=end.seconds)


def _measured(measurements: tuple[Measurement, ...]) -> _Finding:
    """The verdict of the measurements. A limit without bound can refuse nothing, so it is no pass."""
    decisive = worst(measurements)
    if decisive is None:
        return _Finding(Status.MISSING, "nothing was judged: no measurement has a limit", measurements=measurements)
    if boundless := next((m for m in measurements if m.limit is not None and isinf(m.limit)), None):
        reason = f"the limit of {boundless.name} is infinite, so it judges nothing"
        return _Finding(Status.FAILED, reason, measurements=measurements)
    if all(m.within for m in measurements):
        return _Finding(Status.PASSED, measurements=measurements)
    reason = "; ".join(filter(None, (in_words(measurements), describe(decisive))))
    return _Finding(Status.FAILED, one_line(reason, 500), excusable=True, measurements=measurements)


def _unreported(case: Case, trace: Trace, first: bool) -> _Finding:
    """A case without an end.

    In flight, it takes the trouble that ended it. The first case of a session that died while it started takes that
    trouble, since no other case can. Else the case was not run; where the machine is why, that is `environment` too,
    since the machine is what has to be mended.
    """
    fate = trace.fate_of(case.session)
    if trace.cases[case.id].starts:
        trouble = fate.trouble or (Trouble.CRASHED if fate.own else None)
        if trouble is None:
            return _Finding(Status.MISSING, one_line(f"started, and nothing was reported: {fate.text}"))
        return _Finding(Status(trouble), one_line(fate.text), excusable=fate.own and trouble is Trouble.CRASHED)
    stillborn = first and fate.own and fate.trouble is not None and trace.sessions[case.session].ready is None
    if stillborn or fate.trouble is Trouble.ENVIRONMENT:
        return _Finding(Status(fate.trouble or Trouble.CRASHED), one_line(f"not run: {fate.text}"))
    return _Finding(Status.MISSING, one_line(f"not run: {fate.text}"))


def _with_late_deaths(plan: Plan, trace: Trace, found: list[_Finding]) -> list[_Finding]:
    """Give the trouble of a session that died after it had answered everything to the last case that it ran.

    A process that dies after it printed that all is well has failed: upstream's Wave prefill passes, and then its
    process ends with heap corruption (sglang pull request 39356). The other cases keep their verdicts.
    """
    found = list(found)
    place = {case.id: index for index, case in enumerate(plan.cases)}
    for session_id, session in trace.sessions.items():
        if session.ended is None or session.ended.trouble is None or session.last_case is None:
            continue
        if any(not trace.cases[case.id].ends for case in plan.cases_of(session_id)):
            continue
        index = place[session.last_case]
        before = found[index]
        trouble = session.ended.trouble
        itself = before.status.value + (f" ({before.reason})" if before.reason else "")
        found[index] = replace(
            before,
            status=Status(trouble),
            reason=one_line(
                f"session {session_id} {TOLD[trouble]} after this case, the last that it ran: {session.ended.reason}; "
                f"the case itself: {itself}"
            ),
            excusable=trouble is Trouble.CRASHED
            and not trace.interrupted
            and (before.excusable or before.status is Status.PASSED),
        )
    return found


def _with_waiver(
    case: Case, finding: _Finding, waivers: Waivers, architecture: str, facts: Mapping[str, str], today: date
) -> _Finding:
    match = waivers.find(case.id, architecture, facts, today, finding.measurements)
    if match is None:
        return finding
    waiver, expired, excuses = match
    red = finding.status in (Status.FAILED, Status.CRASHED) and finding.excusable
    if red and not excuses:
        reason = f"{finding.reason}; not the failure that waiver {waiver.id} expects, so it is not covered"
        return replace(finding, reason=one_line(reason, 500))
    if expired:
        reason = f"{finding.reason}; waiver {waiver.id} expired on {waiver.expires}" if red else finding.reason
        return replace(finding, reason=reason, waiver=waiver)
    if red:
        reason = f"waived by {waiver.id} until {waiver.expires}: {finding.reason}"
        return replace(finding, status=Status.WAIVED, reason=reason, waiver=waiver)
    if finding.status is Status.PASSED:
        reason = f"passed, although waiver {waiver.id} ({waiver.link}) says that it fails; remove the waiver"
        return replace(finding, status=Status.UNEXPECTED_PASS, reason=reason, waiver=waiver)
    return finding


def _case_result(case: Case, finding: _Finding, told: CaseTrace) -> CaseResult:
    return CaseResult(
        id=case.id,
        battery=case.battery,
        session=case.session,
        status=finding.status,
        reason=finding.reason,
        measurements=finding.measurements,
        evidence=finding.evidence,
        started=told.starts[0].at if told.starts else None,
        seconds=finding.seconds,
        waiver=finding.waiver.id if finding.waiver else None,
    )


def _session_results(plan: Plan, trace: Trace) -> tuple[SessionResult, ...]:
    results = []
    for session in plan.sessions:
        told = trace.sessions[session.id]
        results.append(
            SessionResult(
                id=session.id,
                ended=told.ended is not None,
                trouble=told.ended.trouble if told.ended else None,
                reason=told.ended.reason if told.ended else "",
                ready_seconds=told.ready.seconds if told.ready else None,
                facts=told.ready.facts if told.ready else {},
                log=log_file(session.id),
                log_tail=told.ended.log_tail if told.ended else "",
            )
        )
    return tuple(results)
