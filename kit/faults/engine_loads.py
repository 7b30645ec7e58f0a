"""Faults in how SGLang's memory pool and its manager load adapters: stale weights, scaling applied again, names for identities."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from kit.faults.engine_active import ActiveFaults

Original = Callable[..., Any]


class LoadFaults:
    """Hooks of ``LoRAMemoryPool`` and ``LoRAManager``; without an active fault each does what the original does."""

    def __init__(self, active: ActiveFaults) -> None:
        self._active = active
        self._used: dict[int, str] = {}

    def load(self, original: Original, pool: Any, uid: str | None, slot: int, adapter: Any, *rest: Any) -> None:
        """Around ``LoRAMemoryPool.load_lora_weight_to_buffer``."""
        faults = self._active.strengths
        before = self._used.get(slot)
        if uid is not None:
            self._used[slot] = uid
        stale = uid is not None and before not in (None, uid)
        if "load-slot-not-rewritten" in faults and stale:
            return
        held = [view.clone() for view in _slot(pool, slot)] if faults else []
        original(pool, uid, slot, adapter, *rest)
        if uid is None:
            return
        if "load-missing-not-zeroed" in faults and stale:
            for view, old in zip(_slot(pool, slot), held, strict=True):
                view.copy_(old.where(view == 0, view))
        if "load-last-layer-lost" in faults and stale:
            last = len(adapter.layers) - 1
            for buffers in (*pool.A_buffer.values(), *pool.B_buffer.values()):
                buffers[last][slot].zero_()
        if "load-first-request-old" in faults:
            late = self._active.memory.setdefault("late", [])
            fresh = [view.clone() for view in _slot(pool, slot)]
            for view, old in zip(_slot(pool, slot), held, strict=True):
                view.copy_(old)
            late.append([2, slot, fresh])
        if "load-scaled-twice" in faults:
            loads = self._active.memory.setdefault("loads", {})
            loads[uid] = loads.get(uid, 0) + 1
            if loads[uid] > 1:
                for tensor in chain(pool.B_buffer.values(), [[b] for b in pool.lm_head_B_buffer.values()]):
                    for buffer in tensor:
                        buffer[slot].mul_(adapter.scaling)

    def arrive(self, pool: Any) -> None:
        """Before each batch: weights that came late are there from the second batch on."""
        late = self._active.memory.get("late", [])
        for entry in list(late):
            entry[0] -= 1
            if entry[0] == 0:
                for view, fresh in zip(_slot(pool, entry[1]), entry[2], strict=True):
                    view.copy_(fresh)
                late.remove(entry)

    def clear(self, original: Original, pool: Any, slot: int) -> None:
        """Around ``LoRAMemoryPool._clear_buffer_slot_for_base``."""
        if not self._active.strengths.keys() & {"load-slot-not-rewritten", "load-missing-not-zeroed"}:
            original(pool, slot)

    def prepare(self, original: Original, pool: Any, *args: Any, **kwargs: Any) -> None:
        """Around ``LoRAMemoryPool.prepare_lora_batch``, which evicts."""
        faults = self._active.strengths
        if not self._active.memory.setdefault("settled", False):
            self._active.memory["settled"] = True
            _settle(pool)
        before = dict(pool.uid_to_buffer_id)
        original(pool, *args, **kwargs)
        if "evict-believed-resident" in faults:
            for uid, slot in before.items():
                pool.uid_to_buffer_id.setdefault(uid, slot)

    def weights(self, original: Original, manager: Any, ref: Any) -> None:
        """Around ``LoRAManager.load_lora_weights``."""
        original(manager, ref)
        faults, first = self._active.strengths, self._active.memory.setdefault("first", {})
        adapter, config = manager.loras[ref.lora_id], manager.configs[ref.lora_id]
        known, known_config = first.setdefault(ref.lora_name, (adapter, config))
        if known is adapter:
            return
        if "load-weights-by-name" in faults:
            manager.loras[ref.lora_id], manager.configs[ref.lora_id] = known, known_config
        if "load-scaling-by-name" in faults:
            adapter.scaling = known.scaling
        if "load-scaled-again-by-name" in faults:
            adapter.scaling *= adapter.scaling


def _settle(pool: Any) -> None:
    """Before the first batch under other faults: what the ones before left in the pool is gone, where unloading adapters does not reach.

    Nobody is resident in a slot that is another's, and the slot of the base model holds zeros: a captured graph computes with it.
    """
    for uid, slot in list(pool.uid_to_buffer_id.items()):
        if pool.buffer_id_to_uid[slot] != uid:
            del pool.uid_to_buffer_id[uid]
    base = pool.uid_to_buffer_id.get(None)
    if base is not None:
        for view in _slot(pool, base):
            view.zero_()


def _slot(pool: Any, slot: int) -> Iterator[Any]:
    """All that a slot holds, as views."""
    for buffers in (*pool.A_buffer.values(), *pool.B_buffer.values()):
        for tensor in buffers:
            yield tensor[slot]
    for named in (
        pool.embedding_A_buffer,
        pool.embedding_B_buffer,
        pool.lm_head_A_buffer,
        pool.lm_head_B_buffer,
        pool.new_embeddings_buffer,
    ):
        for tensor in named.values():
            yield tensor[slot]
