"""Runs one worker to its end, whatever that end is, and gives back all that was seen."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from types import FrameType

from kit.events import AnyEvent, EventLog, EventReader, RuntimeEnded, RuntimeStarted, Trouble
from kit.host.runtime import Ending, Runtime
from kit.plan import Plan
from kit.worker.session_process import log_tail

_POLL_SECONDS = 0.2
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class StopRequest:
    """Whether someone asked this process to stop, and by which signal."""

    signal: Signals | None = None

    @property
    def made(self) -> bool:
        """Whether it was made."""
        return self.signal is not None


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Within this context, Ctrl-C and SIGTERM do not raise: they are noted, so that cleaning up and reporting are never cut short."""
    request = StopRequest()

    def note(number: int, _frame: FrameType | None) -> None:
        request.signal = Signals(number)

    previous = {number: signal.signal(number, note) for number in _STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@dataclass
class Observed:
    """Everything that was seen of a run. `damaged` counts lines of the event stream that were no event."""

    worker: list[AnyEvent] = field(default_factory=list)
    host: list[AnyEvent] = field(default_factory=list)
    damaged: int = 0


def supervise(
    plan: Plan,
    runtime: Runtime,
    folder: Path,
    stop: StopRequest,
    on_event: Callable[[AnyEvent], None],
    seen: Observed,
) -> None:
    """Start the worker, follow its events into `seen`, enforce the run's time limit, and leave nothing running.

    `on_event` is called for every event as it comes. What it raises, and a full disk, end the run after cleaning up; `seen` then holds
    all that was seen until there.

    Raises:
        KitError: the worker could not be started.
    """
    reader = EventReader(folder / "events.jsonl")
    host_log = EventLog(folder / "host.jsonl")

    def take(events: list[AnyEvent]) -> None:
        seen.worker += events
        for event in events:
            on_event(event)

    def note(event: AnyEvent) -> None:
        seen.host.append(event)
        host_log.append(event)

    try:
        facts = runtime.start()
        note(RuntimeStarted(runtime=runtime.name, facts=facts))
        deadline = time.monotonic() + plan.run_seconds
        ending: Ending | None = None
        while ending is None:
            take(reader.new())
            if stop.signal is not None:
                ending = Ending(None, f"stopped by {stop.signal.name}", runtime.stop())
            elif time.monotonic() > deadline:
                reason = f"over the run's time limit of {plan.run_seconds:g} s; ended by kit"
                ending = Ending(Trouble.TIMEOUT, reason, runtime.stop())
            else:
                ending = runtime.ended()
                if ending is None:
                    time.sleep(_POLL_SECONDS)
        left = ending.left_behind + runtime.stop()
        reason = ending.reason
        if ending.trouble is not None and (words := _last_words(folder)):
            reason += f"; its last words: {words}"
        note(RuntimeEnded(trouble=ending.trouble, interrupted=stop.made, reason=reason, left_behind=left))
    finally:
        runtime.stop()
        take(reader.rest())
        seen.damaged = reader.damaged
        host_log.close()


def _last_words(folder: Path) -> str:
    """The last line that the worker itself printed, which is nothing unless it failed; sessions have logs of their own."""
    texts = [log_tail(folder / "logs" / name) for name in ("container.log", "worker.log")]
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
