"""A session's own process: opens one subject, answers its cases, and says every step on the event pipe.

Run by `kit.worker.session_process`. Whatever a subject prints goes to the session's log, never into the event stream.
"""

import os
import time
import traceback
from pathlib import Path

from kit.checks import NotApplicable
from kit.errors import KitError
from kit.events import (
    CaseFailedToRun,
    CaseFinished,
    CaseSkipped,
    CaseStarted,
    EventWriter,
    SessionEnded,
    SessionReady,
    Trouble,
)
from kit.faults.switch import SwitchedSubject
from kit.plan import Case, Plan, Session
from kit.process import die_with_parent
from kit.subjects import Subject, Workspace, open_subject, prepare_subject
from kit.worker.arguments import parse_session_arguments
from kit.worker.trial import Trials


def _trouble_of(error: BaseException) -> Trouble:
    """The machine is at fault for a missing thing or memory, and what waited too long says so; anything else is a crash."""
    if isinstance(error, TimeoutError):
        return Trouble.TIMEOUT
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return Trouble.ENVIRONMENT if memory or isinstance(error, KitError) else Trouble.CRASHED


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:500]
    return text if isinstance(error, KitError) else f"{type(error).__name__}: {text}"


def _answer(case: Case, session: Session, trials: Trials, pipe: EventWriter) -> None:
    pipe.append(CaseStarted(session=session.id, case=case.id))
    start = time.monotonic()
    try:
        result = trials.answer(case)
    except NotApplicable as reason:
        pipe.append(CaseSkipped(session=session.id, case=case.id, reason=str(reason)))
    except Exception as error:
        traceback.print_exc()
        pipe.append(
            CaseFailedToRun(
                session=session.id,
                case=case.id,
                seconds=time.monotonic() - start,
                trouble=_trouble_of(error),
                reason=_one_line(error),
            )
        )
    else:
        pipe.append(
            CaseFinished(
                session=session.id,
                case=case.id,
                seconds=time.monotonic() - start,
                measurements=result.measurements,
                evidence=result.evidence,
            )
        )


def _refuse_wrong_architecture(plan: Plan, subject: Subject) -> None:
    found = subject.facts.get("architecture", "unknown")
    if found.split(":", 1)[0] != plan.architecture:
        raise KitError(
            f"this machine's architecture is {found}, the profile {plan.profile} is for {plan.architecture}",
            "choose the profile of this hardware",
        )


def run_session(plan: Plan, session: Session, workspace: Workspace, pipe: EventWriter) -> None:
    """Open the subject and answer every case; a subject that cannot be opened is the session's last word."""
    start = time.monotonic()
    try:
        with open_subject(session.spec, workspace) as subject:
            _refuse_wrong_architecture(plan, subject)
            cases = plan.cases_of(session.id)
            facts = subject.facts | prepare_subject(session.spec, subject, cases)
            pipe.append(SessionReady(session=session.id, seconds=time.monotonic() - start, facts=facts))
            trials = Trials(SwitchedSubject(subject, workspace))
            for case in cases:
                _answer(case, session, trials, pipe)
    except Exception as error:
        traceback.print_exc()
        pipe.append(SessionEnded(session=session.id, trouble=_trouble_of(error), reason=_one_line(error)))
        raise SystemExit(1) from None


def main() -> None:
    """Parse what the worker hands over, and run the session."""
    arguments, events, parent = parse_session_arguments("kit.worker.session")
    os.set_inheritable(events, False)
    die_with_parent(parent)
    plan = Plan.model_validate_json((arguments.folder / "plan.json").read_bytes())
    session = next(s for s in plan.sessions if s.id == arguments.session)
    scratch: Path = arguments.scratch / session.id
    scratch.mkdir(parents=True, exist_ok=True)
    changing = any(case.faults or case.edition for case in plan.cases_of(session.id))
    workspace = Workspace(arguments.assets, scratch, plan.faults, arguments.pinned, changing)
    run_session(plan, session, workspace, EventWriter(events))


if __name__ == "__main__":
    main()
