"""What is left of faults in SGLang's memory pool of adapters when the faults change; a pool of three slots without an engine."""

import os
from pathlib import Path
from types import SimpleNamespace

import torch

from kit.faults.engine_active import ActiveFaults, write_active
from kit.faults.engine_loads import LoadFaults

EMPTY = object()


def pool(resident: dict[str | None, int], slots: list[object]) -> SimpleNamespace:
    """Slot k holds k + 1 everywhere."""
    values = torch.arange(1.0, 4.0)[:, None].repeat(1, 2)
    buffers = {
        name: {"module": values.clone()}
        for name in (
            "embedding_A_buffer",
            "embedding_B_buffer",
            "lm_head_A_buffer",
            "lm_head_B_buffer",
            "new_embeddings_buffer",
        )
    }
    layers = {name: {"module": [values.clone(), values.clone()]} for name in ("A_buffer", "B_buffer")}
    return SimpleNamespace(uid_to_buffer_id=resident, buffer_id_to_uid=slots, **buffers, **layers)


def prepared(folder: Path, *changes: dict[str, float]) -> tuple[SimpleNamespace, LoadFaults]:
    """A pool after one batch under each of these faults; the last batch believes an adapter resident whose slot is the base model's."""
    loads = LoadFaults(ActiveFaults(folder))
    found = pool({"a": 0, None: 1, "evicted": 1}, ["a", None, EMPTY])
    for number, strengths in enumerate(changes):
        write_active(folder, strengths)
        os.utime(folder / "active.json", ns=(number + 1, number + 1))
        loads.prepare(lambda *_: None, found)
    return found, loads


def test_a_batch_without_faults_finds_nothing_of_the_faults_before(tmp_path: Path) -> None:
    found, _ = prepared(tmp_path, {})
    assert found.uid_to_buffer_id == {"a": 0, None: 1}
    assert [row.tolist() for row in found.A_buffer["module"][1]] == [[1, 1], [0, 0], [3, 3]]
    assert [row.tolist() for row in found.lm_head_B_buffer["module"]] == [[1, 1], [0, 0], [3, 3]]


def test_only_the_first_batch_after_a_change_puts_the_pool_in_order(tmp_path: Path) -> None:
    found, loads = prepared(tmp_path, {"batch-slot-zero": 1.0}, {})
    found.uid_to_buffer_id["late"] = 2
    found.A_buffer["module"][0][1] = 7.0
    loads.prepare(lambda *_: None, found)
    assert found.uid_to_buffer_id == {"a": 0, None: 1, "late": 2}
    assert found.A_buffer["module"][0][1].tolist() == [7.0, 7.0]


def test_an_adapter_that_is_believed_resident_is_so_until_the_faults_change(tmp_path: Path) -> None:
    loads = LoadFaults(ActiveFaults(tmp_path))
    found = pool({"a": 0}, ["a", EMPTY, EMPTY])
    write_active(tmp_path, {"evict-believed-resident": 1.0})

    def evict(the_pool: SimpleNamespace) -> None:
        the_pool.uid_to_buffer_id = {"b": 0}
        the_pool.buffer_id_to_uid[0] = "b"

    loads.prepare(evict, found)
    assert found.uid_to_buffer_id == {"b": 0, "a": 0}
    write_active(tmp_path, {})
    loads.prepare(lambda *_: None, found)
    assert found.uid_to_buffer_id == {"b": 0}
