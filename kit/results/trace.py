"""What the two event streams tell, put in order by case and by session, without a verdict."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kit.events import (
    AnyEvent,
    CaseFailedToRun,
    CaseFinished,
    CaseSkipped,
    CaseStarted,
    MachineFound,
    MachineLeft,
    RunRefused,
    RuntimeEnded,
    RuntimeStarted,
    SessionEnded,
    SessionReady,
    SessionStarted,
    Trouble,
    WorkerFinished,
    WorkerStarted,
)
from kit.finding import Finding
from kit.plan import Plan

CaseEnd = CaseFinished | CaseSkipped | CaseFailedToRun


@dataclass
class CaseTrace:
    """All that was said about one planned case. `strangers`: sessions not its own that spoke about it."""

    starts: list[CaseStarted] = field(default_factory=list)
    ends: list[CaseEnd] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)


@dataclass
class SessionTrace:
    """All that was said about one planned session.

    `stage`: where it stood last. `last_case`: the last case that it ran to its end.
    """

    started: bool = False
    ready: SessionReady | None = None
    ended: SessionEnded | None = None
    stage: str = "before it started"
    last_case: str | None = None


class Fate(NamedTuple):
    """What kept a case from its result. `trouble` is None where nobody reported one.

    `own` says that the session itself died of it, and not the worker or the container around it.
    """

    trouble: Trouble | None
    text: str
    own: bool = False


TOLD = {Trouble.CRASHED: "crashed", Trouble.TIMEOUT: "timed out", Trouble.ENVIRONMENT: "could not run"}


@dataclass
class Trace:
    """Both streams. `oddities`: what no well-behaved run tells, one line each; every one makes the run incomplete."""

    cases: dict[str, CaseTrace]
    sessions: dict[str, SessionTrace]
    worker: WorkerStarted | None = None
    worker_finished: bool = False
    found: tuple[Finding, ...] = ()
    refused: RunRefused | None = None
    runtime: RuntimeStarted | None = None
    ending: RuntimeEnded | None = None
    left: tuple[str, ...] = ()
    oddities: list[str] = field(default_factory=list)

    @property
    def interrupted(self) -> bool:
        """Whether the user or the system asked kit to stop."""
        return self.ending is not None and self.ending.interrupted

    def fate_of(self, session_id: str) -> Fate:
        """What keeps the cases of a session from being reported, once both streams are at their end."""
        ended = self.sessions[session_id].ended
        if ended is None:
            return self._fate_of_worker(session_id)
        if ended.trouble is None:
            return Fate(None, f"session {session_id} ended cleanly ({ended.reason}) without reporting it", own=True)
        text = f"session {session_id} {TOLD[ended.trouble]}: {ended.reason}"
        stage = self.sessions[session_id].stage
        if stage not in text:
            text += f", {stage}"
        if self.interrupted:
            text += " (the run was interrupted)"
        return Fate(ended.trouble, text, own=not self.interrupted)

    def _fate_of_worker(self, session_id: str) -> Fate:
        if self.refused is not None:
            return Fate(Trouble.ENVIRONMENT, self.refused.reason)
        where = f"session {session_id} stood {self.sessions[session_id].stage}"
        if self.ending is None:
            return Fate(None, f"the end of the run was not recorded; {where}")
        if self.ending.interrupted:
            return Fate(None, f"the run was interrupted: {self.ending.reason}; {where}")
        if self.ending.trouble is not None:
            return Fate(self.ending.trouble, f"the worker {TOLD[self.ending.trouble]}: {self.ending.reason}; {where}")
        if self.worker_finished:
            return Fate(None, f"the worker finished without telling the end of session {session_id}; {where}")
        return Fate(Trouble.CRASHED, f"the worker ended before it was done: {self.ending.reason}; {where}")


def read_trace(plan: Plan, worker_events: Iterable[AnyEvent], host_events: Iterable[AnyEvent]) -> Trace:
    """Sort the events of a run. Nothing is believed that the plan does not know."""
    sessions = [session.id for session in plan.sessions] + [case.session for case in plan.cases]
    trace = Trace({case.id: CaseTrace() for case in plan.cases}, {name: SessionTrace() for name in sessions})
    own_session = {case.id: case.session for case in plan.cases}
    for event in worker_events:
        match event:
            case WorkerStarted():
                _worker_started(trace, plan, event)
            case WorkerFinished():
                if trace.worker_finished:
                    trace.oddities.append("the worker finished more than once")
                trace.worker_finished = True
            case SessionStarted() | SessionReady() | SessionEnded():
                _session_event(trace, event)
            case CaseStarted() | CaseFinished() | CaseSkipped() | CaseFailedToRun():
                _case_event(trace, own_session, event)
            case RuntimeStarted() | RuntimeEnded() | RunRefused() | MachineFound() | MachineLeft():
                trace.oddities.append(f"the worker wrote the event {event.event}, which is the host's")
    for event in host_events:
        match event:
            case MachineFound():
                trace.found += event.findings
            case RunRefused():
                _run_refused(trace, event)
            case MachineLeft():
                trace.left += event.left
            case RuntimeStarted():
                if trace.runtime is not None:
                    trace.oddities.append("the runtime started more than once")
                trace.runtime = event
            case RuntimeEnded():
                _runtime_ended(trace, event)
            case _:
                trace.oddities.append(f"the host's stream holds the event {event.event}, which is the worker's")
    return trace


def _worker_started(trace: Trace, plan: Plan, event: WorkerStarted) -> None:
    if trace.worker is not None:
        trace.oddities.append("the worker started more than once")
    if event.run_id != plan.run_id:
        trace.oddities.append(f"the worker's events belong to another run, {event.run_id}")
    trace.worker = event


def _run_refused(trace: Trace, event: RunRefused) -> None:
    if trace.refused is not None or trace.worker is not None or trace.runtime is not None:
        trace.oddities.append("the run was refused, and yet something was started")
    trace.refused = event


def _runtime_ended(trace: Trace, event: RuntimeEnded) -> None:
    """One end; kit itself adds another only where it failed after a clean one, and that one tells its trouble."""
    if trace.ending is not None and (trace.ending.trouble is not None or event.trouble is None):
        trace.oddities.append("the runtime ended more than once")
    trace.ending = event


def _session_event(trace: Trace, event: SessionStarted | SessionReady | SessionEnded) -> None:
    session = trace.sessions.get(event.session)
    if session is None:
        trace.oddities.append(f"the session {event.session} was not planned, and reported {event.event}")
        return
    match event:
        case SessionStarted():
            if session.started:
                trace.oddities.append(f"the session {event.session} started more than once")
            session.started, session.stage = True, "while it started"
        case SessionReady():
            if session.ready is not None:
                trace.oddities.append(f"the session {event.session} was ready more than once")
            session.ready, session.stage = event, "before its first case"
        case SessionEnded():
            if session.ended is not None:
                trace.oddities.append(f"the session {event.session} ended more than once")
            if session.ended is None or session.ended.trouble is None:
                session.ended = event


def _case_event(trace: Trace, own_session: dict[str, str], event: CaseStarted | CaseEnd) -> None:
    case = trace.cases.get(event.case)
    if case is None:
        trace.oddities.append(f"session {event.session} reported the case {event.case}, which was not planned")
        return
    if event.session != own_session[event.case]:
        case.strangers.append(event.session)
        return
    session = trace.sessions[event.session]
    if isinstance(event, CaseStarted):
        case.starts.append(event)
        session.stage = f"in case {event.case}"
        return
    case.ends.append(event)
    session.stage = f"after case {event.case}"
    if not isinstance(event, CaseSkipped):
        session.last_case = event.case
