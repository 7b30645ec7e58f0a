"""Seeded inputs of decode attention: queries, a KV cache with unused slots, and a shuffled page table."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kit.plan import GroupedDecode
from kit.synthetic.stream import Weights, bell, words

Slots: TypeAlias = npt.NDArray[np.int64]

_UNUSED_SLOTS = 17


@dataclass(frozen=True)
class DecodeInputs:
    """Inputs of one decode step. All values are exact in float16 and bfloat16; slots that no request uses hold NaN.

    Attributes:
        query: [batch, query_heads, head_dim].
        keys, values: [slots, kv_heads, head_dim] and [slots, kv_heads, value_dim]; slot 0 is never used, as in SGLang.
        pages: per request, the slots of its tokens in order; no slot is used twice.
        scale: factor of the scores, 1/√head_dim.
    """

    query: Weights
    keys: Weights
    values: Weights
    pages: tuple[Slots, ...]
    scale: float


def decode_inputs(spec: GroupedDecode) -> DecodeInputs:
    """Inputs that follow from the shape and the seed alone; entries have standard deviation 1."""
    sizes = (spec.batch, spec.query_heads, spec.kv_heads, spec.head_dim, spec.value_dim, spec.length)
    label = "/".join(str(part) for part in ("decode", spec.seed, *sizes))
    used = spec.batch * spec.length
    slots = used + _UNUSED_SLOTS
    order = 1 + np.argsort(words(f"{label}/pages", slots - 1), kind="stable")[:used]
    unused = np.setdiff1d(np.arange(slots), order)

    def normal(part: str, *shape: int) -> Weights:
        return bell(f"{label}/{part}", int(np.prod(shape)), 1.0).reshape(shape)

    keys = normal("keys", slots, spec.kv_heads, spec.head_dim)
    values = normal("values", slots, spec.kv_heads, spec.value_dim)
    keys[unused], values[unused] = np.nan, np.nan
    return DecodeInputs(
        query=normal("query", spec.batch, spec.query_heads, spec.head_dim),
        keys=keys,
        values=values,
        pages=tuple(order.astype(np.int64).reshape(spec.batch, spec.length)),
        scale=spec.head_dim**-0.5,
    )
