"""Jobs in child processes: a compiler may crash or never end, and takes no other job with it.

A job is a fork of this process, so that it finds torch, SGLang and the compilers loaded. Jobs run side by side, as many as
there are processors, in the order in which they were given.
"""

import contextlib
import multiprocessing
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

from kit.process import die_with_parent, exit_reason

Given = TypeVar("Given")
Found = TypeVar("Found")

_TAIL_BYTES = 2_000
_context = multiprocessing.get_context("fork")


class JobDied(Exception):
    """The process of a job ended without an answer."""


class JobTimeout(TimeoutError):
    """A job was over its time limit, and was ended."""


@dataclass
class _Job(Generic[Given]):
    """Items that one process works off, one after the other."""

    items: "deque[Given]"
    log: Path
    process: BaseProcess | None = None
    pipe: "Connection[Any, Any] | None" = None
    deadline: float = 0.0


@dataclass
class Pool(Generic[Given, Found]):
    """Runs `work` on groups of items, each group in a process of its own.

    Attributes:
        work: answers the items of a group in order; an answer may be an exception. Answers must be picklable.
        folder: for the output of jobs. seconds: time limit of each item. workers: processes at once.
    """

    work: Callable[[tuple[Given, ...]], Iterator[Found | Exception]]
    folder: Path
    seconds: float
    workers: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    _waiting: "deque[_Job[Given]]" = field(default_factory=deque)
    _running: "list[_Job[Given]]" = field(default_factory=list)
    _done: dict[Given, Any] = field(default_factory=dict)
    _jobs: int = 0

    def give(self, items: Iterable[Given]) -> None:
        """Put one more group at the end of the queue."""
        self._waiting.append(_Job(deque(items), self.folder / f"job-{self._jobs}.log"))
        self._jobs += 1
        self._fill()

    def has(self, item: Given) -> bool:
        """Whether an item was given."""
        return item in self._done or any(item in job.items for job in (*self._waiting, *self._running))

    def answer(self, item: Given) -> Found:
        """Wait for an item that was given.

        Raises:
            JobDied, JobTimeout: its process gave no answer. Exception: the answer itself, where it is one.
        """
        while item not in self._done:
            self._step()
        self._fill()
        outcome = self._done[item]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    def close(self) -> None:
        """End every process."""
        self._waiting.clear()
        for job in self._running:
            _end(job)
        self._running.clear()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self.workers:
            job = self._waiting.popleft()
            job.pipe, sender = _context.Pipe(duplex=False)
            arguments = (self.work, tuple(job.items), sender, job.log, os.getpid())
            job.process = _context.Process(target=_run, args=arguments)
            job.process.start()
            sender.close()
            job.deadline = time.monotonic() + self.seconds
            self._running.append(job)

    def _step(self) -> None:
        """Wait until a process has an answer, has ended, or is over its limit."""
        self._fill()
        if not self._running:
            raise LookupError("waited for something that was never given")
        by_pipe = {job.pipe: job for job in self._running}
        left = min(job.deadline for job in self._running) - time.monotonic()
        for pipe in wait([pipe for pipe in by_pipe if pipe is not None], timeout=max(0.0, left)):
            self._hear(by_pipe[pipe])  # type: ignore[index]
        for job in [job for job in self._running if time.monotonic() > job.deadline]:
            self._drop(job, JobTimeout(f"over its limit of {self.seconds:g} s; ended by kit"))

    def _hear(self, job: _Job[Given]) -> None:
        assert job.pipe is not None and job.process is not None
        try:
            self._done[job.items[0]] = job.pipe.recv()
            job.items.popleft()
            job.deadline = time.monotonic() + self.seconds
            if not job.items:
                self._drop(job, None)
        except (EOFError, OSError):
            job.process.join()
            reason, said = exit_reason(job.process.exitcode or 0), _tail(job.log)
            self._drop(job, JobDied(f"its process ended: {reason}" + (f"; {said}" if said else "")))

    def _drop(self, job: _Job[Given], why: Exception | None) -> None:
        """Done with this process: `why` answers what it has not answered."""
        _end(job)
        self._running.remove(job)
        self._done |= dict.fromkeys(job.items, why)
        with contextlib.suppress(OSError):
            print(job.log.read_text(errors="replace"), end="", flush=True)


def _end(job: _Job[Any]) -> None:
    assert job.pipe is not None and job.process is not None
    if not job.items:
        job.process.join(timeout=5.0)
    if job.process.is_alive():
        job.process.kill()
        job.process.join()
    job.pipe.close()


def _tail(log: Path) -> str:
    """The last line that a job wrote."""
    with contextlib.suppress(OSError):
        lines = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
        return " ".join(lines[-1].split())[:300] if lines else ""
    return ""


def _run(
    work: Callable[[tuple[Any, ...]], Iterator[Any]],
    items: tuple[Any, ...],
    sender: "Connection[Any, Any]",
    log: Path,
    parent: int,
) -> None:
    """The life of a process."""
    die_with_parent(parent)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)
    for outcome in work(items):
        sender.send(_portable(outcome) if isinstance(outcome, Exception) else outcome)
    sys.stdout.flush()
    sender.close()


def _portable(error: Exception) -> Exception:
    """An error that another process can read: some classes of compilers cannot be pickled."""
    with contextlib.suppress(Exception):
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")
