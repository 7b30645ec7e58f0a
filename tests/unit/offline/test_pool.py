import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.offline.pool import JobDied, JobTimeout, Pool


def work(items: tuple[str, ...]) -> Iterator[str | Exception]:
    for item in items:
        match item.split("-")[0]:
            case "killed":
                print("last words of the compiler", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            case "endless":
                time.sleep(3600)
            case "wrong":
                yield ValueError("no such register")
            case "odd":

                class Local(Exception):
                    """Another process cannot know it."""

                yield Local("from inside")
            case _:
                yield item.upper()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool[str, str]]:
    pool: Pool[str, str] = Pool(work, tmp_path, seconds=20.0, workers=2)
    yield pool
    pool.close()


def test_answers_come_for_every_item_in_any_order(pool: Pool[str, str]) -> None:
    for group in (["a", "b"], ["c"], ["d", "e", "f"]):
        pool.give(group)
    assert [pool.answer(item) for item in "fedcba"] == list("FEDCBA")


def test_a_crash_costs_only_what_its_process_had_not_answered(pool: Pool[str, str]) -> None:
    pool.give(["a", "killed", "b"])
    pool.give(["c"])
    assert pool.answer("a") == "A"
    for lost in ("killed", "b"):
        with pytest.raises(JobDied, match=r"SIGKILL.*last words of the compiler"):
            pool.answer(lost)
    assert pool.answer("c") == "C"


def test_a_process_over_its_limit_is_ended(tmp_path: Path) -> None:
    pool: Pool[str, str] = Pool(work, tmp_path, seconds=0.5, workers=1)
    pool.give(["endless"])
    pool.give(["a"])
    with pytest.raises(JobTimeout, match=r"limit of 0\.5 s"):
        pool.answer("endless")
    assert pool.answer("a") == "A"


def test_an_answer_may_be_an_error_of_any_class(pool: Pool[str, str]) -> None:
    pool.give(["wrong", "odd", "a"])
    with pytest.raises(ValueError, match="no such register"):
        pool.answer("wrong")
    with pytest.raises(RuntimeError, match="Local: from inside"):
        pool.answer("odd")
    assert pool.answer("a") == "A"


def test_closing_leaves_no_process(tmp_path: Path) -> None:
    pool: Pool[str, str] = Pool(work, tmp_path, seconds=60.0, workers=2)
    pool.give(["endless-1"])
    pool.give(["endless-2"])
    running = [job.process for job in pool._running]
    pool.close()
    assert len(running) == 2
    assert not any(process is not None and process.is_alive() for process in running)
