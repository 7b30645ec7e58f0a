"""All-reduce between the GPUs of a profile, as tensor parallelism uses it: one process per rank, NCCL, RCCL or gloo."""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kit.plan import CollectiveSession, InjectedFault
from kit.process import die_with_parent, end_descendants
from kit.subjects.device import device_facts, versions
from kit.subjects.workspace import Workspace

_START_SECONDS = 120.0
Dtype = Literal["float32", "bfloat16"]
Integers = npt.NDArray[np.int64]

RANK_SILENT, RANK_WRONG_ELEMENT = "rank-silent", "rank-wrong-element"
_PERIOD, _HALF = 17, 8
_STRIDE, _RANK_STRIDE = 7, 5


def contribution(rank: int, count: int) -> Integers:
    """What a rank adds: integers from −8 to 8 that differ from place to place and from rank to rank.

    Sums of up to 31 ranks stay below 256, so they are exact in bfloat16 in whatever order they are added.
    """
    return (np.arange(count, dtype=np.int64) * _STRIDE + rank * _RANK_STRIDE) % _PERIOD - _HALF


@dataclass(frozen=True)
class Reduced:
    """What one rank holds after an all-reduce.

    Attributes:
        wrong: how many elements are not the sum of all contributions.
        first: the first wrong place, −1 where there is none; `found` and `expected` are its values.
        seconds: the fastest of three timed rounds, from an idle device to an idle device.
    """

    rank: int
    wrong: int
    first: int
    found: float
    expected: float
    seconds: float


@dataclass
class Collectives:
    """Ranks that wait for work. After a hang they are gone, and every further request says so.

    Attributes:
        facts: versions, devices, backend.
    """

    session: CollectiveSession
    facts: dict[str, str]
    pipes: list[Connection] = field(repr=False)
    ended: str = ""

    def all_reduce(self, dtype: Dtype, count: int, seconds: float) -> list[Reduced]:
        """Sum `count` elements over all ranks, on every rank.

        Args:
            seconds: after that, ranks without an answer count as hanging.
        Raises:
            TimeoutError: some ranks did not answer; they are named, and all ranks are ended.
            RuntimeError: a rank raised or died.
        """
        if self.ended:
            raise RuntimeError(f"the ranks were ended: {self.ended}")
        for pipe in self.pipes:
            with contextlib.suppress(BrokenPipeError):  # a dead rank is named where its answer is awaited
                pipe.send((dtype, count))
        return [Reduced(*answer) for answer in self._answers(f"all-reduce of {count} {dtype} elements", seconds)]

    def _answers(self, what: str, seconds: float) -> list[tuple[Any, ...]]:
        answers: dict[int, tuple[Any, ...]] = {}
        deadline = time.monotonic() + seconds
        while len(answers) < len(self.pipes):
            silent = {pipe: rank for rank, pipe in enumerate(self.pipes) if rank not in answers}
            ready = wait(list(silent), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                names = ", ".join(str(rank) for rank in silent.values())
                self._end(f"{what}: no answer from rank {names} within {seconds:g} s")
                raise TimeoutError(self.ended)
            for pipe in ready:
                rank = silent[pipe]  # type: ignore[index]
                try:
                    told = self.pipes[rank].recv()
                except (EOFError, ConnectionError):
                    self._end(f"{what}: rank {rank} died")
                    raise RuntimeError(self.ended) from None
                if isinstance(told, str):
                    self._end(f"{what}: rank {rank} raised {told}")
                    raise RuntimeError(self.ended)
                answers[rank] = told
        return [answers[rank] for rank in range(len(self.pipes))]

    def _end(self, why: str) -> None:
        self.ended = why
        end_descendants()


@contextmanager
def open_collectives(session: CollectiveSession, workspace: Workspace) -> Iterator[Collectives]:
    """Ranks that have met; on leaving, none is left.

    Raises:
        EnvironmentFault: no device. RuntimeError, TimeoutError: they could not meet.
    """
    facts = device_facts(session.device) | versions(("torch", "numpy"))
    context = multiprocessing.get_context("spawn")
    store = workspace.scratch / "rendezvous"
    pipes = []
    for rank in range(session.ranks):
        own, other = context.Pipe()
        context.Process(
            target=_serve,
            args=(other, os.getpid(), session, rank, f"file://{store}", workspace.faults),
            name=f"rank-{rank}",
            daemon=True,
        ).start()
        other.close()
        pipes.append(own)
    subject = Collectives(session, facts | {"ranks": str(session.ranks), "backend": _backend(session)}, pipes)
    try:
        subject._answers("start", _START_SECONDS)
        yield subject
    finally:
        end_descendants()


def _backend(session: CollectiveSession) -> str:
    return "gloo" if session.device == "cpu" else "nccl"


def _serve(
    pipe: Connection,
    parent: int,
    session: CollectiveSession,
    rank: int,
    store: str,
    faults: Sequence[InjectedFault],
) -> None:
    """One rank: meets the others, then answers until the pipe is closed. What it raises goes through the pipe, as text."""
    die_with_parent(parent)
    import torch
    import torch.distributed

    try:
        device = torch.device("cpu" if session.device == "cpu" else f"{session.device}:{rank}")
        if device.type != "cpu":
            torch.cuda.set_device(device)
        torch.distributed.init_process_group(_backend(session), init_method=store, rank=rank, world_size=session.ranks)
        torch.distributed.all_reduce(torch.zeros(1, device=device))  # makes the connections
        pipe.send(())
        misdeeds = {fault.name for fault in faults} if rank == session.ranks - 1 else set()
        while True:
            dtype, count = pipe.recv()
            pipe.send(_reduce(torch, device, rank, session.ranks, dtype, count, misdeeds))
    except EOFError:
        return
    except BaseException as error:
        pipe.send(f"{type(error).__name__}: {error}")
        raise


def _reduce(
    torch: Any, device: Any, rank: int, ranks: int, dtype: Dtype, count: int, misdeeds: set[str]
) -> tuple[int, int, int, float, float, float]:
    own = torch.tensor(contribution(rank, count), dtype=getattr(torch, dtype), device=device)
    expected = np.sum([contribution(other, count) for other in range(ranks)], axis=0)
    if RANK_WRONG_ELEMENT in misdeeds:
        own[count // 2] += 1
    if RANK_SILENT in misdeeds:
        time.sleep(3600.0)
    seconds = []
    for _ in range(3):
        result = own.clone()
        _settle(torch, device)
        begin = time.monotonic()
        torch.distributed.all_reduce(result)
        _settle(torch, device)
        seconds.append(time.monotonic() - begin)
    found = result.cpu().double().numpy()
    wrong = np.flatnonzero(found != expected)
    first = int(wrong[0]) if len(wrong) else -1
    values = (float(found[first]), float(expected[first])) if len(wrong) else (0.0, 0.0)
    return rank, len(wrong), first, *values, min(seconds)


def _settle(torch: Any, device: Any) -> None:
    if device.type != "cpu":
        torch.cuda.synchronize(device)
