"""Faults in what SGLang tells its LoRA kernels of a batch: which slot serves a row, and rank and scaling of each slot."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass
class LoraBatch:
    """A batch before its LoRA kernels learn of it; faults alter it in place.

    Attributes:
        rows: per row the slot whose adapter serves it.
        ranks, scalings: per slot; rank 0 where no row of this batch uses the slot, or it holds the base model.
        bare: per row, whether it asks for the base model.
        begun: per row, whether a part of its prompt was computed in an earlier batch, or found in a cache.
        tokens: in the whole batch. decoding: one token per row.
        memory: what a fault remembers between batches.
    """

    rows: list[int]
    ranks: list[int]
    scalings: list[float]
    bare: list[bool]
    begun: list[bool]
    tokens: int
    decoding: bool
    memory: dict[str, Any]

    def silence(self, row: int) -> None:
        """Serve a row without its adapter: from a slot of rank 0, or by taking its own slot's rank where there is no such slot."""
        if 0 in self.ranks:
            self.rows[row] = self.ranks.index(0)
        else:
            self.ranks[self.rows[row]] = 0

    @property
    def adapted(self) -> list[int]:
        """Slots of adapters in this batch, in the order of their first rows."""
        return list(dict.fromkeys(slot for slot, bare in zip(self.rows, self.bare, strict=True) if not bare))


MANY_TOKENS: Final = 64
MANY_ROWS: Final = 8


def _slot_zero(batch: LoraBatch, _: float) -> None:
    if batch.tokens > MANY_TOKENS:
        batch.rows[:] = [0] * len(batch.rows)


def _first_row(batch: LoraBatch, _: float) -> None:
    if batch.tokens > MANY_TOKENS:
        batch.rows[:] = batch.rows[:1] * len(batch.rows)


def _permuted(batch: LoraBatch, _: float) -> None:
    batch.rows[:] = [*batch.rows[1:], *batch.rows[:1]]


def _previous(batch: LoraBatch, _: float) -> None:
    now = (list(batch.rows), list(batch.ranks), list(batch.scalings))
    rows, ranks, scalings = batch.memory.get("previous", now)
    batch.memory["previous"] = now
    batch.rows[:] = [rows[place % len(rows)] for place in range(len(batch.rows))]
    for slot in set(batch.rows):
        batch.ranks[slot], batch.scalings[slot] = ranks[slot], scalings[slot]


def _third_skipped(batch: LoraBatch, _: float) -> None:
    if len(batch.adapted) > 2:
        batch.ranks[batch.adapted[-1]] = 0


def _base_adapted(batch: LoraBatch, _: float) -> None:
    if batch.adapted:
        for row, bare in enumerate(batch.bare):
            if bare:
                batch.rows[row] = batch.adapted[0]


def _scaling_of_first(batch: LoraBatch, _: float) -> None:
    if batch.adapted:
        batch.scalings[:] = [batch.scalings[batch.adapted[0]]] * len(batch.scalings)


def _smallest_rank(batch: LoraBatch, _: float) -> None:
    if batch.adapted:
        smallest = min(batch.ranks[slot] for slot in batch.adapted)
        for slot in batch.adapted:
            batch.ranks[slot] = smallest


def _rows_beyond(batch: LoraBatch, _: float) -> None:
    for row in range(MANY_ROWS, len(batch.rows)):
        batch.silence(row)


def _neighbours_exchanged(batch: LoraBatch, _: float) -> None:
    if len(batch.rows) > 1:
        batch.rows[-2:] = batch.rows[:-3:-1]


def _now_and_then(batch: LoraBatch, strength: float) -> None:
    batch.memory["batches"] = batch.memory.get("batches", 0) + 1
    if batch.memory["batches"] % 7 == 0:
        batch.scalings[:] = [strength * scaling for scaling in batch.scalings]


def _decode_without(batch: LoraBatch, _: float) -> None:
    if batch.decoding:
        batch.ranks[:] = [0] * len(batch.ranks)


def _grows_in_decode(batch: LoraBatch, strength: float) -> None:
    step = batch.memory["steps"] = batch.memory.get("steps", 0) + 1 if batch.decoding else 0
    batch.scalings[:] = [scaling * (1.0 + strength * step) for scaling in batch.scalings]


def _decode_slot_zero(batch: LoraBatch, _: float) -> None:
    if batch.decoding and len(batch.rows) > 1:
        batch.rows[:] = batch.rows[:1] * len(batch.rows)


def _begun_without(batch: LoraBatch, _: float) -> None:
    for row, begun in enumerate(batch.begun):
        if begun and not batch.decoding:
            batch.silence(row)


def _scaled(batch: LoraBatch, strength: float) -> None:
    batch.scalings[:] = [strength * scaling for scaling in batch.scalings]


BATCH_FAULTS: Final[dict[str, Callable[[LoraBatch, float], None]]] = {
    "batch-slot-zero": _slot_zero,
    "batch-first-row-for-all": _first_row,
    "batch-rows-permuted": _permuted,
    "batch-adapters-of-previous": _previous,
    "batch-third-adapter-skipped": _third_skipped,
    "batch-base-adapted": _base_adapted,
    "batch-scaling-of-first": _scaling_of_first,
    "batch-smallest-rank": _smallest_rank,
    "batch-rows-beyond-eight": _rows_beyond,
    "batch-last-two-exchanged": _neighbours_exchanged,
    "batch-now-and-then": _now_and_then,
    "batch-scaling": _scaled,
    "decode-without-adapter": _decode_without,
    "decode-error-grows": _grows_in_decode,
    "decode-first-row-for-all": _decode_slot_zero,
    "chunk-without-adapter": _begun_without,
}
"""By fault, the change of a batch; the number is the fault's strength."""
