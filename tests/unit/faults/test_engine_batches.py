from collections.abc import Sequence

import pytest

from kit.faults.catalogue import FAULTS
from kit.faults.engine_batches import BATCH_FAULTS, LoraBatch

SCALINGS = [0.0, 1.625, 1.375, 3.0]
RANKS = [0, 8, 16, 4]


def a_batch(rows: Sequence[int], tokens: int = 80, decoding: bool = False, begun: Sequence[int] = ()) -> LoraBatch:
    """Slot 0 is the base model's; ranks and scalings are of those slots that the batch uses."""
    return LoraBatch(
        rows=list(rows),
        ranks=[rank if slot in rows else 0 for slot, rank in enumerate(RANKS)],
        scalings=[scaling if slot in rows else 0.0 for slot, scaling in enumerate(SCALINGS)],
        bare=[slot == 0 for slot in rows],
        begun=[place in begun for place in range(len(rows))],
        tokens=tokens,
        decoding=decoding,
        memory={},
    )


def served(fault: str, batch: LoraBatch, strength: float = 1.0) -> list[tuple[int, float]]:
    """Rank and scaling with which each row is served under a fault."""
    BATCH_FAULTS[fault](batch, strength)
    return [(batch.ranks[slot], batch.scalings[slot] if batch.ranks[slot] else 0.0) for slot in batch.rows]


BASE, ONE, TWO, THREE = (0, 0.0), (8, 1.625), (16, 1.375), (4, 3.0)


@pytest.mark.parametrize(
    ("fault", "rows", "expected"),
    [
        ("batch-slot-zero", (1, 0, 2), [BASE, BASE, BASE]),
        ("batch-first-row-for-all", (1, 0, 2), [ONE, ONE, ONE]),
        ("batch-rows-permuted", (1, 0, 2), [BASE, TWO, ONE]),
        ("batch-last-two-exchanged", (1, 0, 2), [ONE, TWO, BASE]),
        ("batch-last-two-exchanged", (1,), [ONE]),
        ("batch-third-adapter-skipped", (1, 0, 2, 3, 1), [ONE, BASE, TWO, BASE, ONE]),
        ("batch-third-adapter-skipped", (1, 0, 2), [ONE, BASE, TWO]),
        ("batch-base-adapted", (0, 2, 1), [TWO, TWO, ONE]),
        ("batch-base-adapted", (0, 0), [BASE, BASE]),
        ("batch-scaling-of-first", (1, 2), [ONE, (16, 1.625)]),
        ("batch-smallest-rank", (1, 0, 2), [ONE, BASE, (8, 1.375)]),
        ("batch-rows-beyond-eight", (1,) * 10, [*[ONE] * 8, BASE, BASE]),
    ],
)
def test_who_is_served_with_what(fault: str, rows: tuple[int, ...], expected: list[tuple[int, float]]) -> None:
    assert served(fault, a_batch(rows)) == expected


@pytest.mark.parametrize("fault", ["batch-slot-zero", "batch-first-row-for-all"])
def test_a_threshold_of_64_tokens(fault: str) -> None:
    assert served(fault, a_batch((1, 0, 2), tokens=64)) == [ONE, BASE, TWO]


def test_a_batch_gets_the_adapters_of_the_one_before() -> None:
    first, second = a_batch((1, 0)), a_batch((2, 3, 2))
    second.memory = first.memory
    assert served("batch-adapters-of-previous", first) == [ONE, BASE]
    assert served("batch-adapters-of-previous", second) == [ONE, BASE, ONE]


def test_every_seventh_batch_is_scaled() -> None:
    memory: dict[str, int] = {}
    scaled = []
    for number in range(1, 15):
        batch = a_batch((1,))
        batch.memory = memory
        if served("batch-now-and-then", batch, 2.0) != [ONE]:
            scaled.append(number)
    assert scaled == [7, 14]


def test_decode_faults_leave_prefill_alone() -> None:
    for fault in ("decode-without-adapter", "decode-first-row-for-all", "decode-error-grows"):
        assert served(fault, a_batch((1, 0, 2))) == [ONE, BASE, TWO]
    assert served("decode-without-adapter", a_batch((1, 2), decoding=True)) == [BASE, BASE]
    assert served("decode-first-row-for-all", a_batch((1, 0), decoding=True)) == [ONE, ONE]


def test_an_error_grows_with_each_decoded_token_and_starts_anew_with_a_prompt() -> None:
    memory: dict[str, int] = {}
    found = []
    for decoding in (False, True, True, False, True):
        batch = a_batch((1,), decoding=decoding)
        batch.memory = memory
        found.append(served("decode-error-grows", batch, 0.1)[0][1] / 1.625)
    assert found == pytest.approx([1.0, 1.1, 1.2, 1.0, 1.1])


def test_a_row_whose_prompt_was_begun_before_loses_its_adapter() -> None:
    assert served("chunk-without-adapter", a_batch((1, 2), begun=[1])) == [ONE, BASE]


def test_without_a_free_slot_a_silenced_row_takes_the_rank_of_its_own() -> None:
    batch = a_batch((1, 2))
    batch.ranks[0] = batch.ranks[3] = 5
    batch.silence(1)
    assert (batch.rows, batch.ranks[2]) == ([1, 2], 0)


def test_every_fault_of_batches_stands_in_the_catalogue() -> None:
    assert {FAULTS[name].acts_on for name in BATCH_FAULTS} == {"engine"}
