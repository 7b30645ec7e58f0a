"""The peer of every attention kernel: q kᵀ, softmax and the product with v in plain torch, each rounded to the dtype.

It knows nothing of pages, splits or blocks: it gets the requests as the formula sees them (`kit.synthetic.attention.requests`).
"""

import math
from collections.abc import Iterable

import numpy as np
import torch

from kit.attention_spec import AttentionSpec
from kit.oracles.metrics import Values
from kit.subjects.kernels.tensors import float64
from kit.synthetic.attention import AttentionInputs, Request


def plain(spec: AttentionSpec, inputs: AttentionInputs, requests: Iterable[Request], device: str) -> Values:
    """[new tokens, query_heads, value_dim] in float64, computed in the case's dtype."""
    dtype = getattr(torch, spec.dtype)
    sinks = None if inputs.sinks is None else torch.from_numpy(inputs.sinks).to(device, dtype)
    return np.concatenate([float64(_one(spec, request, sinks, inputs.scale, device, dtype)) for request in requests])


def _one(
    spec: AttentionSpec, request: Request, sinks: torch.Tensor | None, scale: float, device: str, dtype: torch.dtype
) -> torch.Tensor:
    query, keys, values = (torch.from_numpy(a).to(device, dtype) for a in (request.query, request.keys, request.values))
    rows, group = len(query), spec.query_heads // spec.kv_heads
    q = query.view(rows, spec.kv_heads, group, spec.head_dim).permute(1, 2, 0, 3)
    scores = (q @ keys.permute(1, 2, 0)[:, None]) * scale
    if spec.logit_cap > 0.0:
        scores = spec.logit_cap * torch.tanh(scores / spec.logit_cap)
    if spec.temperature_length is not None:
        scores = scores * _temperature(request, spec.temperature_length).to(device, dtype)
    visible = torch.from_numpy(request.visible).to(device)
    scores = scores.masked_fill(~visible, -torch.inf)
    if sinks is not None:
        sink = sinks.view(spec.kv_heads, group, 1, 1).expand(-1, -1, rows, 1)
        weights = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    mixed = weights @ values.permute(1, 0, 2)[:, None]
    return mixed.permute(2, 0, 1, 3).reshape(rows, spec.query_heads, spec.value_dim)


def _temperature(request: Request, length: int) -> torch.Tensor:
    factors = [math.log(p) / math.log(length) if p > length else 1.0 for p in request.positions.tolist()]
    return torch.tensor(factors)[:, None]
