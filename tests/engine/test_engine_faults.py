"""Every fault inside SGLang's processes acts, on a real engine: it touches exactly the rows that it is about, and no others.

Those that the multi-lora battery is to see are seen by small cases of its kinds, whose measurements name the rows, operations or
requests that the fault touched.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from kit.faults.catalogue import FAULTS
from kit.faults.engine_seen import engine_must_see
from kit.paths import package_folder
from kit.plan import Case
from tests.engine.engine_faults import CASES, scene_of

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


ALL_ROWS = [(batch, row) for batch in range(2) for row in range(4)]
NAMED_ROWS = {
    "batch-rows-permuted": ALL_ROWS,
    "batch-adapters-of-previous": ALL_ROWS,  # the first batch by what its rows are alone: those requests follow on each other
    "batch-third-adapter-skipped": [(0, 3), (1, 3)],
    "batch-base-adapted": [(0, 1), (1, 2)],
}
"""Batches: adapter-0, base, adapter-1, query-value; then query-value, adapter-0, base, adapter-1."""
AT = r"token \d+: -[\d.]+, (by the oracle|alone) -[\d.]+"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    scratch = tmp_path_factory.mktemp("engine-faults")
    root = package_folder().parent
    command = [sys.executable, "-m", "tests.engine.engine_faults", str(scratch)]
    environment = os.environ | {"PYTHONPATH": str(root)}
    ended = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=1200)
    assert ended.returncode == 0, ended.stderr[-4000:]
    told: dict[str, dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
    return told


@pytest.fixture(scope="module")
def found(answers: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    return {name: set(touched) for name, touched in answers["touched"].items()}


@pytest.fixture(scope="module")
def named(answers: dict[str, dict[str, Any]]) -> dict[str, dict[str, str]]:
    return answers["named"]


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


def rows_named(where: str) -> list[tuple[int, int]]:
    return [(int(batch), int(row)) for batch, row in re.findall(r"batch (\d) row (\d) \(", where)]


def test_the_cases_that_are_asked_must_see_their_faults_and_are_green_without(named: dict[str, dict[str, str]]) -> None:
    for fault, spec in CASES.items():
        assert engine_must_see(fault, Case(id="multi-lora/tiny-qwen3/small", session="s", spec=spec)), fault
        assert named[f"honest {fault}"] == {}, fault
        assert named[fault], fault


@pytest.mark.parametrize("fault", NAMED_ROWS)
def test_a_mixed_batch_names_the_rows_that_a_fault_touched(named: dict[str, dict[str, str]], fault: str) -> None:
    where = named[fault]["red_rows"]
    assert rows_named(where) == NAMED_ROWS[fault]
    first = re.match(rf"batch \d row \d \((base|adapter-0|adapter-1|query-value)\), {AT}; ", where)
    assert first and re.search(r"; permitted [\d.e-]+ nat$", where)


def test_one_slot_for_all_rows_leaves_the_rows_of_one_identity_right(named: dict[str, dict[str, str]]) -> None:
    where = named["batch-slot-zero"]["red_rows"]
    identities = [("adapter-0", "base", "adapter-1", "query-value"), ("query-value", "adapter-0", "base", "adapter-1")]
    red = [identities[batch][row] for batch, row in rows_named(where)]
    assert len(red) == 6 and len({*red}) == 3


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("load-slot-not-rewritten", r"operation \d+: (row \d of 2, )?again \([\w-]+@\d\)"),
        ("load-scaled-again-by-name", r"operation 2: again \(adapter-0@2\)"),
        ("load-scaled-twice", r"operation 10: adapter-0 \(adapter-0\)"),
        ("load-missing-not-zeroed", r"operation \d+: [\w-]+ \([\w@-]+\)"),
    ],
)
def test_the_life_of_an_adapter_names_operation_adapter_and_place(
    named: dict[str, dict[str, str]], fault: str, sentence: str
) -> None:
    sentences = named[fault]["wrong_answers"].split("; operation ")
    assert re.match(rf"{sentence}, {AT}; permitted [\d.e-]+ nat", sentences[0])


def test_a_cache_names_who_found_what(named: dict[str, dict[str, str]]) -> None:
    where = named["cache-key-without-adapter"]["cached_tokens_of_others"]
    found = [f"request {number}: {who} found 39 of 40 tokens" for number, who in ((2, "adapter-0"), (3, "adapter-1"))]
    assert where == "; ".join(found)
