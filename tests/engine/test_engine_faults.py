"""Every fault inside SGLang's processes acts, on a real engine: it touches exactly the rows that it is about, and no others."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from kit.faults.catalogue import FAULTS
from kit.paths import package_folder
from tests.engine.engine_faults import scene_of

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="SGLang is not installed"),
]


def rows(label: str, *places: int) -> set[str]:
    return {f"{label}-{place}" for place in places}


def both(*places: int) -> set[str]:
    """Rows of the short and of the long batch: adapter-0, base, adapter-1, query-value."""
    return rows("short", *places) | rows("long", *places)


LIVING = {
    *rows("first", 0, 1, 2),
    *rows("back", 0, 1, 2),
    *(f"new-{what}" for what in ("lora", "second", "again")),
    "reloaded",
}
FURTHER = [f"row-{place}-further" for place in range(3)]
TOUCHED: dict[str, set[str]] = {
    "batch-slot-zero": rows("long", 0, 2, 3),
    "batch-first-row-for-all": rows("long", 1, 2, 3),
    "batch-rows-permuted": both(0, 1, 2, 3),
    "batch-last-two-exchanged": both(2, 3),
    "batch-third-adapter-skipped": both(3),
    "batch-base-adapted": both(1),
    "batch-scaling-of-first": both(2, 3),
    "batch-smallest-rank": both(2),
    "batch-rows-beyond-eight": rows("many", 8, 9),
    "batch-scaling": both(0, 2, 3) | rows("many", *range(10)) | {"alone"},
    "logits-of-next-row": both(0, 1, 2, 3) | rows("many", *range(10)) | {"alone"},
    "decode-without-adapter": {FURTHER[0], FURTHER[2]},
    "decode-error-grows": {FURTHER[0], FURTHER[2]},
    "decode-first-row-for-all": {FURTHER[1], FURTHER[2]},
    "decode-positions-off-by-one": set(FURTHER),
    "chunk-without-adapter": {"3-adapter-0"},
    "chunk-positions-restart": {"3-adapter-0"},
    "cache-key-without-adapter": {"1-adapter-0", "2-adapter-1", "3-adapter-0"},
    "cache-key-adapter-or-not": {"2-adapter-1"},
    "load-scaled-twice": rows("back", 0, 1, 2),
    "load-scaled-again-by-name": {"reloaded"},
    "load-weights-by-name": {"reloaded"},
    "load-scaling-by-name": {"reloaded"},
    "load-slot-not-rewritten": LIVING,
    "load-last-layer-lost": LIVING,
    "load-first-request-old": LIVING - {"new-again"},
    "evict-believed-resident": rows("back", 0, 1),
    "positions-late-off-by-one": {"late"},
    "logits-temperature": {"early", "late"},
    "logits-bfloat16": {"early", "late"},
    "logits-capped": {"early", "late"},
    "logits-one-token": {"early", "late"},
}
SOME_OF = {
    "batch-adapters-of-previous": {"many-1", "alone"},
    "batch-now-and-then": set(),
    "load-missing-not-zeroed": {"new-second"},
}
"""Faults of which a part is certain: what else they touch follows from what the engine did before."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    scratch = tmp_path_factory.mktemp("engine-faults")
    root = package_folder().parent
    command = [sys.executable, "-m", "tests.engine.engine_faults", str(scratch)]
    environment = os.environ | {"PYTHONPATH": str(root)}
    ended = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=1200)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return {name: set(touched) for name, touched in json.loads(ended.stdout.splitlines()[-1]).items()}


def test_the_table_is_of_the_catalogue() -> None:
    assert TOUCHED.keys() | SOME_OF.keys() == {name for name, kind in FAULTS.items() if kind.acts_on == "engine"}
    assert not TOUCHED.keys() & SOME_OF.keys()


def test_without_a_fault_every_answer_is_the_same_again(found: dict[str, set[str]]) -> None:
    scenes = {f"honest {scene_of(name)}" for name in (*TOUCHED, *SOME_OF)}
    assert scenes <= found.keys()
    assert {name: found[name] for name in scenes if found[name]} == {}


@pytest.mark.parametrize("fault", TOUCHED)
def test_a_fault_touches_the_rows_that_it_is_about(found: dict[str, set[str]], fault: str) -> None:
    assert found[fault] == TOUCHED[fault]


@pytest.mark.parametrize("fault", SOME_OF)
def test_a_fault_touches_something(found: dict[str, set[str]], fault: str) -> None:
    assert found[fault] and SOME_OF[fault] <= found[fault]
