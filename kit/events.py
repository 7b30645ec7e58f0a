"""The event stream: one JSON object per line, appended by the worker (``events.jsonl``) and by the host (``host.jsonl``).

Readers take every well-formed line and count the rest: a stream cut off at any byte still tells what it told.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, JsonValue, TypeAdapter, ValidationError

from kit.errors import ExitCode
from kit.finding import Finding
from kit.measurement import Measurement, Record

EVENT_SCHEMA = 1


class Event(Record):
    """What all events carry: `at` is seconds since the epoch (UTC)."""

    at: FiniteFloat = Field(default_factory=time.time)


class WorkerStarted(Event):
    """The worker read the plan. `facts`: versions, machine, limits that were seen from inside."""

    event: Literal["worker-started"] = "worker-started"
    schema_version: int = EVENT_SCHEMA
    run_id: str
    pid: int
    facts: dict[str, str]


class SessionStarted(Event):
    """A session's process exists."""

    event: Literal["session-started"] = "session-started"
    session: str
    pid: int


class SessionReady(Event):
    """A session can answer cases. `facts`: versions, devices, stand-ins in use."""

    event: Literal["session-ready"] = "session-ready"
    session: str
    seconds: float
    facts: dict[str, str]


class CaseStarted(Event):
    """A session began a case."""

    event: Literal["case-started"] = "case-started"
    session: str
    case: str


class CaseFinished(Event):
    """A case was measured. The verdict is not part of it: it follows from the measurements.

    Attributes:
        evidence: what helps to understand a red case: worst position, rows, references. Small; bulk goes to logs.
    """

    event: Literal["case-finished"] = "case-finished"
    session: str
    case: str
    seconds: float
    measurements: tuple[Measurement, ...]
    evidence: dict[str, JsonValue] = Field(default_factory=dict)


class CaseSkipped(Event):
    """A session found that a case does not apply."""

    event: Literal["case-skipped"] = "case-skipped"
    session: str
    case: str
    reason: str


class Trouble(StrEnum):
    """Why a case or a session has no measurement."""

    CRASHED = "crashed"
    TIMEOUT = "timeout"
    ENVIRONMENT = "environment"


class CaseFailedToRun(Event):
    """A case raised instead of measuring; the session lives on."""

    event: Literal["case-failed-to-run"] = "case-failed-to-run"
    session: str
    case: str
    seconds: float
    trouble: Trouble
    reason: str


class SessionEnded(Event):
    """A session's process is gone. `trouble` is None after a clean end.

    Attributes:
        reason: exit code or signal by name, or which limit it broke, in one line.
        log_tail: the last lines of its log.
    """

    event: Literal["session-ended"] = "session-ended"
    session: str
    trouble: Trouble | None
    reason: str
    log_tail: str = ""


class WorkerFinished(Event):
    """The worker ran all sessions and is about to exit with 0. Without this event, the run is incomplete."""

    event: Literal["worker-finished"] = "worker-finished"


class MachineFound(Event):
    """Host: what the look at the machine before the start found, without what was well."""

    event: Literal["machine-found"] = "machine-found"
    findings: tuple[Finding, ...]


class RunRefused(Event):
    """Host: nothing was started.

    Attributes:
        exit_code: 3, the machine cannot run this; 4, an image or asset is at fault.
        reason: what is wrong and what to do, one line.
    """

    event: Literal["run-refused"] = "run-refused"
    exit_code: Literal[ExitCode.ENVIRONMENT, ExitCode.IMAGE]
    reason: str


class MachineLeft(Event):
    """Host: what the run left on the machine, one line each: processes on the GPUs, their memory, containers."""

    event: Literal["machine-left"] = "machine-left"
    left: tuple[str, ...]


class RuntimeStarted(Event):
    """Host: the container or local process was started. `facts`: engine, image id, container id, host."""

    event: Literal["runtime-started"] = "runtime-started"
    runtime: Literal["docker", "local"]
    facts: dict[str, str]


class RuntimeEnded(Event):
    """Host: the container or local process is gone.

    Attributes:
        trouble: None after exit code 0.
        interrupted: the user or the system asked kit to stop.
        reason: exit code, signal, limit, or out of memory, in one line.
        left_behind: processes that had outlived the worker and were ended by the host.
    """

    event: Literal["runtime-ended"] = "runtime-ended"
    trouble: Trouble | None
    interrupted: bool = False
    reason: str
    left_behind: tuple[str, ...] = ()


AnyEvent = Annotated[
    WorkerStarted
    | SessionStarted
    | SessionReady
    | CaseStarted
    | CaseFinished
    | CaseSkipped
    | CaseFailedToRun
    | SessionEnded
    | WorkerFinished
    | MachineFound
    | RunRefused
    | RuntimeStarted
    | RuntimeEnded
    | MachineLeft,
    Field(discriminator="event"),
]
_ADAPTER: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)


def parse_event(line: str | bytes) -> AnyEvent | None:
    """The event in a line; None where the line is damaged or of an unknown kind."""
    try:
        return _ADAPTER.validate_json(line)
    except (ValidationError, ValueError):
        return None


def parse_lines(lines: Iterable[bytes]) -> tuple[list[AnyEvent], int]:
    """The events of some lines, and how many lines were no event; empty lines are neither."""
    parsed = [parse_event(line) for line in lines if line.strip()]
    events = [event for event in parsed if event is not None]
    return events, len(parsed) - len(events)


class EventWriter:
    """Writes events to an open file or pipe, one a line; an event shorter than a pipe's buffer is one write."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def append(self, event: Event) -> None:
        """Write one event. Raises OSError where the disk is full."""
        data = memoryview(event.model_dump_json().encode() + b"\n")
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Close it; further appends raise OSError."""
        os.close(self._fd)


class EventLog(EventWriter):
    """The only writer of one event file: each event is one write, so a reader never sees half of one and a kill loses at most the last."""

    def __init__(self, path: Path) -> None:
        super().__init__(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644))

    def append(self, event: Event) -> None:
        """Write one event, or nothing. Raises OSError where the disk is full."""
        before = os.fstat(self._fd).st_size
        try:
            super().append(event)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, before)
            raise


class EventReader:
    """Follows an event file that may not exist yet; `damaged` counts lines that were no event."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self.damaged = 0

    def new(self) -> list[AnyEvent]:
        """Events completed since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return self._parse(lines)

    def rest(self) -> list[AnyEvent]:
        """What new() gives, and the last line even where its newline is missing. For when the writer is gone."""
        events = self.new()
        last, self._rest = self._rest, b""
        return events + self._parse([last])

    def _parse(self, lines: list[bytes]) -> list[AnyEvent]:
        events, damaged = parse_lines(lines)
        self.damaged += damaged
        return events
