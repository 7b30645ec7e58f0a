"""Which Triton kernels really ran: a library that silently falls back to another one is seen by the names."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def recorded_launches() -> Iterator[list[str]]:
    """The qualified names of Triton kernels launched within, compiled or interpreted, in order of their first launch."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    seen: list[str] = []
    kept: list[tuple[Any, str, Any]] = []

    def recording(run: Any) -> Any:
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            name = f"{self.fn.__module__}.{self.fn.__name__}"
            if name not in seen:
                seen.append(name)
            return run(self, *args, **kwargs)

        return wrapped

    def recording_cached(pick: Any) -> Any:
        def wrapped(self: Any, grid: Any) -> Any:
            name = f"{self.fn.fn.__module__}.{self.fn.fn.__name__}"
            if name not in seen:
                seen.append(name)
            return pick(self, grid)

        return wrapped

    for kind in (JITFunction, InterpretedFunction):
        kept.append((kind, "run", kind.run))
        kind.run = recording(kind.run)
    cached = getattr(sys.modules.get("sglang.srt.utils.common"), "CachedKernel", None)
    if cached is not None:  # SGLang's own cache goes past JITFunction.run
        kept.append((cached, "__getitem__", cached.__getitem__))
        cached.__getitem__ = recording_cached(cached.__getitem__)
    try:
        yield seen
    finally:
        for kind, name, honest in kept:
            setattr(kind, name, honest)


def foreign(launched: Sequence[str], module: str) -> tuple[str, ...]:
    """Kernels that are not of this module, or the word that none ran."""
    if not launched:
        return ("nothing was launched",)
    return tuple(name for name in launched if name.rpartition(".")[0] != module)
