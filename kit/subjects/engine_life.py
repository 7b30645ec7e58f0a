"""When an engine lives: it is started, watched, and started again where a check asks what it dies of.

As a rule the death of a process of the engine ends this process in the same way (`kit.subjects.watcher`). Inside `EngineLife.mortal`
it is an `EngineDied` instead, so that a check can measure it and the next case finds a fresh engine.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum, auto
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

from kit.process import end_descendants
from kit.subjects.watcher import end_like, watched_children

_FAILED_CHILD = 128 + signal.SIGQUIT


class EngineDied(Exception):
    """A process of the engine died while it was asked something."""


class _Death(KeyboardInterrupt):
    """Raised by the handler of SIGQUIT: event loops let nothing but KeyboardInterrupt and SystemExit through."""


class _State(Enum):
    VITAL = auto()
    MORTAL = auto()
    DEAD = auto()


class EngineLife:
    """One `sglang.Engine` at a time, started on entering, in the main thread; on leaving, no process of it is left.

    Args:
        arguments: of `sglang.Engine`.
        warm_up: asks the engine what must be compiled before a case, called after each start.
    Attributes:
        died_of: the risks of which an engine died.
    """

    def __init__(self, arguments: dict[str, Any], warm_up: Callable[[Any], object]) -> None:
        self._arguments = arguments
        self._warm_up = warm_up
        self._engine: Any = None
        self._state = _State.VITAL
        self._watching = ExitStack()
        self._children: list[BaseProcess] = []
        self.died_of: set[str] = set()

    @property
    def engine(self) -> Any:
        """The living engine."""
        if self._engine is None:
            self._start()
        return self._engine

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._state = _State.DEAD
        self._end()

    @contextmanager
    def mortal(self, risk: str) -> Iterator[None]:
        """While inside, the engine may die of `risk`: `EngineDied` is raised then, and the next use starts another one.

        Raises:
            EngineDied: a process of the engine died.
        """
        if self._engine is None:
            self._start()  # a death in starting is the end of this process
        self._state = _State.MORTAL
        try:
            yield
        except _Death:
            self.died_of.add(risk)
            self._state = _State.DEAD
            self._end()
            asyncio.set_event_loop(asyncio.new_event_loop())  # the old one waits for answers that never come
            raise EngineDied("a process of the engine died") from None
        finally:
            self._state = _State.VITAL

    def _start(self) -> None:
        import sglang

        others = multiprocessing.active_children()  # an engine that died may still be among them
        self._engine = sglang.Engine(**self._arguments)
        self._children = [child for child in multiprocessing.active_children() if child not in others]
        self._watching.enter_context(watched_children(self._child_died, others))
        self._warm_up(self._engine)
        signal.signal(signal.SIGQUIT, self._child_failed)  # after the first request, which installs SGLang's own

    def _end(self) -> None:
        self._watching.close()
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None
        end_descendants()

    def _child_died(self, child: BaseProcess) -> None:
        """In the watcher's thread."""
        if self._state is _State.VITAL:
            self._state = _State.DEAD  # SGLang sees the death too, and sends SIGQUIT
            end_like(child)
        os.kill(os.getpid(), signal.SIGQUIT)

    def _child_failed(self, signum: int, frame: object) -> None:
        """SGLang's processes send SIGQUIT to this one before they end by an exception."""
        if self._state is _State.DEAD:
            return
        if self._state is _State.MORTAL:
            self._state = _State.DEAD
            raise _Death
        if killed := next((child for child in self._children if (child.exitcode or 0) < 0), None):
            end_like(killed)  # SGLang saw the death before the watcher did
        print(
            "kit: a process of the engine reported a failure (SIGQUIT); ending the session", file=sys.stderr, flush=True
        )
        end_descendants()
        os._exit(_FAILED_CHILD)
