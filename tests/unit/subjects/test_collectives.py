"""All-reduce between real processes, by gloo: right, wrong, hanging, dying."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest

pytest.importorskip("torch")

from kit.check_spec import AllReduce
from kit.checks import all_reduce
from kit.faults.catalogue import parse_fault
from kit.plan import CollectiveSession
from kit.subjects.collectives import Collectives, contribution, open_collectives
from kit.subjects.workspace import Workspace

# Ending the ranks ends the resource tracker of multiprocessing too, which starts again.
pytestmark = pytest.mark.filterwarnings("ignore:resource_tracker")

SESSION = CollectiveSession(ranks=2, device="cpu")


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Callable[..., Collectives]]:
    with ExitStack() as stack:

        def go(*faults: str) -> Collectives:
            workspace = Workspace(assets=tmp_path, scratch=tmp_path, faults=tuple(map(parse_fault, faults)))
            return stack.enter_context(open_collectives(SESSION, workspace))

        yield go
    left = psutil.Process().children(recursive=True)
    assert [child for child in left if child.status() != psutil.STATUS_ZOMBIE] == []  # an adopted one is dead already


def red(subject: Collectives, spec: AllReduce) -> dict[str, float]:
    return {m.name: m.value for m in all_reduce.check(spec, subject).measurements if not m.within}


def test_contributions_differ_between_places_and_ranks_and_their_sums_are_exact_in_bfloat16() -> None:
    ranks = np.stack([contribution(rank, 1000) for rank in range(31)])
    assert np.abs(np.cumsum(ranks, axis=0)).max() <= 256 and np.abs(ranks).max() * 31 <= 256
    assert all(len(set(column)) > 1 for column in ranks[:5].T)
    assert (contribution(0, 1000) != contribution(1, 1000)).all()
    assert len(set(contribution(0, 17))) == 17


def test_right_sums_are_green_in_both_dtypes(ranks: Callable[..., Collectives]) -> None:
    subject = ranks()
    for dtype in ("float32", "bfloat16"):
        spec = AllReduce(dtype=dtype, mebibytes=2, seconds=60)  # type: ignore[arg-type]
        assert red(subject, spec) == {}
    assert (subject.facts["ranks"], subject.facts["backend"]) == ("2", "gloo")


def test_one_wrong_element_is_red_on_every_rank_and_its_place_is_told(ranks: Callable[..., Collectives]) -> None:
    result = all_reduce.check(AllReduce(dtype="bfloat16", mebibytes=1, seconds=60), ranks("rank-wrong-element"))
    assert next(m.value for m in result.measurements if m.name == "wrong_elements") == 2
    places = [(told["rank"], told["first"]) for told in result.evidence["wrong_ranks"]]  # type: ignore[index, union-attr]
    assert places == [(0, 2**18), (1, 2**18)]


def test_a_hang_is_named_with_its_rank_and_ended(ranks: Callable[..., Collectives]) -> None:
    subject, begin = ranks("rank-silent"), time.monotonic()
    spec = AllReduce(dtype="float32", mebibytes=1, seconds=2)
    with pytest.raises(
        TimeoutError, match=r"all-reduce of 262144 float32 elements: no answer from rank 0, 1 within 2 s"
    ):
        all_reduce.check(spec, subject)
    assert time.monotonic() - begin < 30
    with pytest.raises(RuntimeError, match=r"the ranks were ended: .*no answer from rank"):
        all_reduce.check(spec, subject)


def test_a_rank_that_dies_is_named(ranks: Callable[..., Collectives]) -> None:
    subject = ranks()
    victim = next(p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline()))
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"rank \d (died|raised)"):
        all_reduce.check(AllReduce(dtype="float32", mebibytes=1, seconds=60), subject)
