"""Ends this process when a process of its engine dies: a request to a dead engine would wait for ever."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import NoReturn

from kit.process import adopt_orphans, end_descendants

_POLL_SECONDS = 0.2
_REAP_SECONDS = 1.0
_FATAL = {signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS}


def end_like(child: BaseProcess) -> NoReturn:
    """End this process in the way in which its child ended.

    The cause is written to stderr, all other descendants are killed, and this process dies by the child's signal where
    it is a fatal one, else with exit code 128 + signal, or with the child's exit code, 1 for 0.
    """
    deadline = time.monotonic() + _REAP_SECONDS
    while child.exitcode is None and time.monotonic() < deadline:
        time.sleep(0.01)
    code = child.exitcode
    how = "ended" if code is None else signal_name(-code) if code < 0 else f"ended with exit code {code}"
    print(
        f"kit: process {child.pid} of the engine ({child.name}) {how}; ending the session", file=sys.stderr, flush=True
    )
    end_descendants()
    if code is None or code >= 0:
        os._exit(code or 1)
    if -code in _FATAL:
        os.kill(os.getpid(), -code)
        time.sleep(_REAP_SECONDS)
    os._exit(128 - code)


@contextlib.contextmanager
def watched_children(
    on_death: Callable[[BaseProcess], None] = end_like, others: Collection[BaseProcess] = ()
) -> Iterator[None]:
    """While inside, `on_death` is called at the first death of a child that `multiprocessing` started by now, in a thread.

    Args:
        others: children that do not count.
    """
    adopt_orphans()  # else what a dead child had started would not be found
    children = [child for child in multiprocessing.active_children() if child not in others]
    stopped = threading.Event()
    thread = threading.Thread(target=_watch, args=(children, stopped, on_death), name="kit-watcher", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(5.0)


def _watch(children: list[BaseProcess], stopped: threading.Event, on_death: Callable[[BaseProcess], None]) -> None:
    sentinels = {child.sentinel: child for child in children}
    while sentinels and not stopped.is_set():
        for ready in wait(list(sentinels), timeout=_POLL_SECONDS):
            if not stopped.is_set():
                assert isinstance(ready, int)
                on_death(sentinels[ready])
            return


def signal_name(number: int) -> str:
    """``died by SIGKILL``; the number where the signal has no name."""
    try:
        return f"died by {signal.Signals(number).name}"
    except ValueError:
        return f"died by signal {number}"
