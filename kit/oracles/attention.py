"""The oracle for decode attention over a page table: float64, numpy only.

Formula: softmax(q kᵀ · scale) v, Vaswani et al. (arXiv 1706.03762), section 3.2.1; grouped heads as in Ainslie et al.
(arXiv 2305.13245).
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from kit.oracles.twice import Array, Summation, agreed


def grouped_decode(
    query: Array, keys: Array, values: Array, pages: Sequence[npt.NDArray[np.int64]], scale: float
) -> Array:
    """Attention of one new token per request over its cached tokens.

    Args:
        query: [batch, query_heads, head_dim].
        keys, values: the whole cache, [slots, kv_heads, head_dim] and [slots, kv_heads, value_dim].
        pages: per request, the slots of its tokens.
        scale: factor of the scores.
    Returns:
        [batch, query_heads, value_dim]. Query head h reads KV head h // (query_heads / kv_heads).
    Raises:
        OracleDisagreement: two computations differ, or a slot in use is not finite.
    """
    return agreed("decode attention", partial(_decode, query, keys, values, pages, scale))


def _decode(
    query: Array,
    keys: Array,
    values: Array,
    pages: Sequence[npt.NDArray[np.int64]],
    scale: float,
    sums: Summation,
) -> Array:
    batch, query_heads, head_dim = query.shape
    kv_heads, value_dim = values.shape[1:]
    out = np.empty((batch, query_heads, value_dim))
    for request, slots in enumerate(pages):
        k = keys[slots].transpose(1, 2, 0)
        v = values[slots].transpose(1, 0, 2)
        q = query[request].reshape(kv_heads, query_heads // kv_heads, head_dim)
        scores = sums.contract(q, k) * scale
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = sums.contract(weights / sums.total(weights), v)
        out[request] = mixed.reshape(query_heads, value_dim)
    return out
