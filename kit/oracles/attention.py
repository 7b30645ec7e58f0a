"""The oracle for attention: float64, numpy only.

Formula: softmax(q kᵀ · scale) v, Vaswani et al. (arXiv 1706.03762), section 3.2.1; grouped heads as in Ainslie et al.
(arXiv 2305.13245); capped scores cap·tanh(s / cap) as in Gemma 2 (arXiv 2408.00118), section 2; a sink is one more score in the
softmax, without a value, as in gpt-oss; temperature by position as in Grok (`kit.attention_spec.Attention`).
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from kit.oracles.twice import Array, Summation, agreed
from kit.synthetic.attention import Request

_ROWS = 256
"""New tokens at a time, which bounds memory."""


@dataclass(frozen=True)
class Scoring:
    """From products of query and key to weights: scale, cap (0 is none), sinks [query_heads], temperature length."""

    scale: float
    logit_cap: float = 0.0
    sinks: npt.NDArray[np.float32] | None = None
    temperature_length: int | None = None


def attend(requests: Sequence[Request], scoring: Scoring) -> Array:
    """Attention of new tokens over all tokens that they see.

    Returns:
        [new tokens, query_heads, value_dim], the requests one after the other. Query head h reads KV head
        h // (query_heads / kv_heads).
    Raises:
        OracleDisagreement: two computations differ, or a key or value in use is not finite.
    """
    return agreed("attention", partial(_attend, requests, scoring))


def largest_score(requests: Sequence[Request], scale: float) -> float:
    """A bound of |q kᵀ · scale|, by the lengths of the vectors."""
    return scale * max(
        float(
            np.max(np.linalg.norm(r.query, axis=-1), initial=0.0) * np.max(np.linalg.norm(r.keys, axis=-1), initial=0.0)
        )
        for r in requests
    )


def _attend(requests: Sequence[Request], scoring: Scoring, sums: Summation) -> Array:
    parts = [(request, start, start + _ROWS) for request in requests for start in range(0, len(request.query), _ROWS)]
    if len(parts) == 1:
        return _part(scoring, sums, parts[0])
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return np.concatenate(list(pool.map(partial(_part, scoring, sums), parts)))


def _part(scoring: Scoring, sums: Summation, part: tuple[Request, int, int]) -> Array:
    request, start, end = part
    query = request.query[start:end].astype(np.float64)
    rows, query_heads, head_dim = query.shape
    tokens, kv_heads, value_dim = request.values.shape
    group = query_heads // kv_heads
    q = query.reshape(rows, kv_heads, group, head_dim).transpose(1, 0, 2, 3).reshape(kv_heads, rows * group, head_dim)
    k = request.keys.astype(np.float64).transpose(1, 2, 0)
    scores = sums.contract(q, k).reshape(kv_heads, rows, group, tokens) * scoring.scale
    if scoring.logit_cap > 0.0:
        scores = scoring.logit_cap * np.tanh(scores / scoring.logit_cap)
    if scoring.temperature_length is not None:
        scores = scores * _temperature(request.positions[start:end], scoring.temperature_length)[None, :, None, None]
    scores = np.where(request.visible[start:end][None, :, None, :], scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    if scoring.sinks is not None:
        sinks = scoring.sinks.astype(np.float64).reshape(kv_heads, 1, group, 1)
        top = np.maximum(top, sinks)
    weights = np.exp(scores - top)
    total = sums.total(weights)
    if scoring.sinks is not None:
        total = total + np.exp(sinks - top)
    share = (weights / total).reshape(kv_heads, rows * group, tokens)
    mixed = sums.contract(share, request.values.astype(np.float64).transpose(1, 0, 2))
    return mixed.reshape(kv_heads, rows, group, value_dim).transpose(1, 0, 2, 3).reshape(rows, query_heads, value_dim)


def _temperature(positions: npt.NDArray[np.int64], length: int) -> Array:
    return np.array([math.log(p) / math.log(length) if p > length else 1.0 for p in positions.tolist()])
