"""One session as its keeper sees it: a child process, its event pipe, its time limits, and how it ended."""

import contextlib
import os
import selectors
import subprocess
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO

from kit.events import (
    CaseFailedToRun,
    CaseFinished,
    CaseSkipped,
    CaseStarted,
    EventWriter,
    SessionEnded,
    SessionReady,
    SessionStarted,
    Trouble,
    parse_event,
)
from kit.plan import Plan
from kit.process import end_descendants, exit_reason, memory_kills
from kit.worker.arguments import SessionArguments
from kit.worker.session_log import SessionLog

_SHUTDOWN_SECONDS = 60.0
_POLL_SECONDS = 0.2
_TAIL_LINES = 40
_TAIL_BYTES = 16_384
_LINE_BYTES = 4 * 1024 * 1024


class SessionProcess:
    """Runs one session to its end and reports it; never raises for what the child does."""

    def __init__(self, plan: Plan, arguments: SessionArguments, log: EventWriter) -> None:
        self._session = session = next(s for s in plan.sessions if s.id == arguments.session)
        self._arguments = arguments
        self._log = log
        self._log_path = arguments.folder / "logs" / f"{session.id}.log"
        self._stage = "while it started"
        self._deadline = time.monotonic() + session.start_seconds
        self._limit = session.start_seconds
        self._last_word: SessionEnded | None = None
        self._unanswered = {case.id for case in plan.cases_of(session.id)}

    def run(self) -> None:
        """Start the child, forward its events, enforce its limits, end all its processes."""
        kills_before = memory_kills()
        read_fd, write_fd = os.pipe()
        self._log_path.parent.mkdir(exist_ok=True)
        output = SessionLog(self._log_path)
        with os.fdopen(read_fd, "rb", buffering=0) as pipe:
            try:
                child = subprocess.Popen(
                    self._arguments.command("kit.worker.session", write_fd),
                    stdin=subprocess.DEVNULL,
                    stdout=output.fd,
                    stderr=subprocess.STDOUT,
                    pass_fds=(write_fd,),
                    start_new_session=True,
                )
            finally:
                os.close(write_fd)
                output.started()
            self._log.append(SessionStarted(session=self._session.id, pid=child.pid))
            in_time = self._follow(child, pipe)
            end_descendants()
            child.wait()
        output.close()
        self._log.append(self._ending(child.returncode, in_time, memory_kills() - kills_before))

    def _follow(self, child: "subprocess.Popen[bytes]", pipe: BinaryIO) -> bool:
        """Forward events until the child is gone (True) or over a limit (False)."""
        os.set_blocking(pipe.fileno(), False)
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            open_pipe = True
            while True:
                gone = child.poll() is not None
                if open_pipe:
                    selector.select(_POLL_SECONDS)
                else:
                    time.sleep(_POLL_SECONDS)
                while open_pipe and time.monotonic() < self._deadline:
                    chunk = pipe.read(65_536)
                    if chunk is None:
                        break
                    if chunk == b"":
                        selector.unregister(pipe)
                        open_pipe = False
                        break
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._forward(line)
                    rest = rest[:_LINE_BYTES]
                if gone:
                    return True
                if time.monotonic() > self._deadline:
                    return False

    def _forward(self, line: bytes) -> None:
        """Take over one line of the child; what is no event of this session is dropped here and shows as a missing case."""
        event = parse_event(line)
        if getattr(event, "session", None) != self._session.id:
            return
        match event:
            case SessionReady():
                self._enter("before its first case", _SHUTDOWN_SECONDS)
            case CaseStarted():
                self._enter(f"in case {event.case}", self._session.case_seconds)
            case CaseFinished() | CaseSkipped() | CaseFailedToRun():
                self._unanswered.discard(event.case)
                self._enter(f"after case {event.case}", _SHUTDOWN_SECONDS)
            case SessionEnded():
                self._last_word = event
                return
            case _:
                return
        self._log.append(event)

    def _enter(self, stage: str, limit: float) -> None:
        self._stage, self._limit = stage, limit
        self._deadline = time.monotonic() + limit

    def _ending(self, returncode: int, in_time: bool, memory_kills: int) -> SessionEnded:
        trouble: Trouble | None
        reason = exit_reason(returncode)
        if not in_time:
            trouble, reason = Trouble.TIMEOUT, f"over its limit of {self._limit:g} s {self._stage}; ended by kit"
        elif memory_kills and (returncode != 0 or self._unanswered):  # else another session's process was killed
            trouble, reason = Trouble.ENVIRONMENT, f"out of memory {self._stage}: the kernel killed a process"
        elif self._last_word is not None and self._last_word.trouble is not None:
            trouble, reason = self._last_word.trouble, self._last_word.reason
        elif returncode != 0:
            trouble, reason = Trouble.CRASHED, f"{reason} {self._stage}"
        elif self._unanswered:
            trouble, reason = Trouble.CRASHED, f"{reason}, with {len(self._unanswered)} cases unanswered"
        else:
            trouble = None
        return SessionEnded(
            session=self._session.id,
            trouble=trouble,
            reason=reason,
            log_tail="" if trouble is None else log_tail(self._log_path),
        )


def log_tail(path: Path) -> str:
    """The last lines of a log of any size and any bytes; empty where it cannot be read."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = deque(file.read().decode("utf-8", errors="replace").splitlines(), maxlen=_TAIL_LINES)
        return "\n".join(lines)
    return ""
