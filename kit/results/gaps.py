"""What is red or worth a warning about a run as a whole: gaps that no single case carries, and the rules of a mode."""

from collections.abc import Collection, Iterator, Sequence
from datetime import date

from kit.errors import ExitCode
from kit.events import Trouble
from kit.finding import Severity
from kit.plan import Plan
from kit.profile import Profile
from kit.results.model import CaseResult, Mode, Problem, Status
from kit.results.text import one_line
from kit.results.trace import TOLD, Trace
from kit.waiver import Waiver

_TELLS_OF_A_DEATH = (Status.CRASHED, Status.TIMEOUT, Status.MISSING, Status.ENVIRONMENT, Status.WAIVED)


def problems_of(
    plan: Plan,
    profile: Profile,
    mode: Mode,
    trace: Trace,
    cases: Sequence[CaseResult],
    damaged: int,
    waivers: Collection[Waiver],
    today: date,
) -> tuple[Problem, ...]:
    """Why the run is red beside its cases."""
    texts = [*trace.oddities, *_lost(damaged), *_nothing_run(cases)]
    problems = [Problem(exit_code=ExitCode.INCOMPLETE, text=one_line(text)) for text in texts]
    problems += _refusal(trace) if trace.refused is not None else _uncarried_deaths(plan, trace, cases)
    if mode is Mode.QUALIFY:
        refused = _refused(plan, profile, trace, cases, waivers, today)
        problems += [Problem(exit_code=ExitCode.NOT_CONFORMING, text=one_line(text)) for text in refused]
    return tuple(problems)


def _lost(damaged: int) -> Iterator[str]:
    if damaged:
        yield f"{damaged} lines of the event streams were damaged, and what they told is lost"


def _nothing_run(cases: Sequence[CaseResult]) -> Iterator[str]:
    if not cases:
        yield "no case was planned"
    elif all(case.status is Status.SKIPPED for case in cases):
        yield "every case was skipped, so nothing was measured"


def _refusal(trace: Trace) -> Iterator[Problem]:
    """Why nothing was started, where the machine is not the reason; what is wrong with that, every case tells."""
    if trace.refused is not None and trace.refused.exit_code is not ExitCode.ENVIRONMENT:
        yield Problem(exit_code=trace.refused.exit_code, text=one_line(f"nothing was started: {trace.refused.reason}"))


def _uncarried_deaths(plan: Plan, trace: Trace, cases: Sequence[CaseResult]) -> Iterator[Problem]:
    """Ends of the worker and of sessions that are not as they should be, and that no case tells of."""
    silent = [case for case in cases if case.status in _TELLS_OF_A_DEATH and not trace.cases[case.id].ends]
    telling = {case.session for case in silent}
    telling |= {
        c.session for c in cases if c.status in _TELLS_OF_A_DEATH and c.id == trace.sessions[c.session].last_case
    }
    for session in plan.sessions:
        ended = trace.sessions[session.id].ended
        if session.id in telling:
            continue
        if ended is not None and ended.trouble is not None:
            text = f"session {session.id} {TOLD[ended.trouble]}: {ended.reason}"
            yield Problem(exit_code=_code(ended.trouble), text=one_line(text))
        if ended is None and trace.worker_finished and plan.cases_of(session.id):
            text = f"the worker finished without telling the end of session {session.id}"
            yield Problem(exit_code=ExitCode.INCOMPLETE, text=text)
    if trace.interrupted or any(trace.sessions[case.session].ended is None for case in silent):
        return
    if trace.ending is None:
        yield Problem(exit_code=ExitCode.INCOMPLETE, text="the end of the run was not recorded")
    elif trace.ending.trouble is not None:
        text = f"the worker {TOLD[trace.ending.trouble]} after its last case: {trace.ending.reason}"
        yield Problem(exit_code=_code(trace.ending.trouble), text=one_line(text))
    elif not trace.worker_finished:
        text = f"the worker ended without saying that it was done: {trace.ending.reason}"
        yield Problem(exit_code=ExitCode.INCOMPLETE, text=one_line(text))


def _code(trouble: Trouble) -> ExitCode:
    return ExitCode.ENVIRONMENT if trouble is Trouble.ENVIRONMENT else ExitCode.INCOMPLETE


def _refused(
    plan: Plan,
    profile: Profile,
    trace: Trace,
    cases: Sequence[CaseResult],
    waivers: Collection[Waiver],
    today: date,
) -> Iterator[str]:
    """What a qualification does not accept."""
    if trace.runtime is not None and trace.runtime.runtime != "docker":
        yield "qualify: the run was not in the pinned image"
    if plan.rerun_of is not None:
        yield f"qualify: this is a rerun of {plan.rerun_of}"
    for battery in profile.mandatory:
        own = [case for case in cases if case.battery == battery]
        if not own:
            yield f"qualify: the mandatory battery {battery} has no case"
        for case in own:
            if case.status is Status.SKIPPED:
                yield f"qualify: {case.id} of a mandatory battery was skipped: {case.reason}"
    for fault in plan.injected:
        yield f"qualify: the fault {fault.name} was injected"
    for waiver in waivers:
        if waiver.expires < today:
            yield f"qualify: waiver {waiver.id} expired on {waiver.expires}"


def warnings_of(
    plan: Plan, trace: Trace, cases: Sequence[CaseResult], waivers: Collection[Waiver], today: date
) -> tuple[str, ...]:
    """What a reader must know, in the order of its weight."""
    warnings = [
        f"FAULT INJECTED ON PURPOSE: {fault.name} ({fault.strength:g}); this run says nothing about the hardware"
        for fault in plan.injected
    ]
    if plan.omitted:
        planned, known = len(plan.cases), len(plan.cases) + plan.omitted
        verb = "was" if planned == 1 else "were"
        warnings.append(
            f"only {planned:,} of {known:,} cases of the profile {verb} planned; of the rest it says nothing"
        )
    if plan.rerun_of is not None:
        warnings.append(
            f"only what was not green in run {plan.rerun_of} was planned; this run says nothing about the rest"
        )
    warnings += [f"{case.id} {case.reason}" for case in cases if case.status is Status.UNEXPECTED_PASS]
    warnings += [f"waiver {w.id} expired on {w.expires}; {w.link}" for w in waivers if w.expires < today]
    warnings += [str(finding) for finding in trace.found if finding.severity is Severity.WARN]
    if trace.ending:
        warnings += [f"a process outlived the worker and was ended: {name}" for name in trace.ending.left_behind]
    warnings += [f"left on the machine by this run: {text}" for text in trace.left]
    return tuple(one_line(warning) for warning in warnings)
