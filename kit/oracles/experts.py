"""A mixture of experts as in GPT-OSS, in float64 (model card, arXiv 2508.10925, and its reference code openai/gpt-oss).

Router: logits W x + bias; the k largest are chosen, and a softmax over these alone gives the shares. Expert: gate and up
are interleaved, gate is clamped from above and up from both sides at `limit`; (up + 1) · gate · sigmoid(1.702 · gate).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kit.oracles.layers import Layers
from kit.oracles.twice import Array

ALPHA = 1.702


@dataclass(frozen=True)
class ExpertSettings:
    """What the formulas need besides weights; named as in config.json."""

    num_experts_per_tok: int
    swiglu_limit: float


def mixture(settings: ExpertSettings, layers: Layers, module: str, x: Array) -> Array:
    """Shares of the chosen experts times their outputs, [n, d] → [n, d]; `module` is the layer's ``mlp``."""
    logits = layers.linear(f"{module}.router", x)
    chosen = choose(logits, settings.num_experts_per_tok)
    raised = np.where(chosen, np.exp(logits - logits.max(axis=-1, keepdims=True)), 0.0)
    shares = raised / layers.sums.total(raised)
    out = np.zeros_like(x)
    for expert in layers.sums.places(logits.shape[-1]):
        rows = np.flatnonzero(chosen[:, expert])
        out[rows] += shares[rows, expert, None] * _expert(settings, layers, f"{module}.experts", int(expert), x[rows])
    return out


def choose(logits: Array, count: int) -> npt.NDArray[np.bool_]:
    """Which experts a token visits: those of its `count` largest logits, [n, experts] → [n, experts]."""
    chosen = np.zeros(logits.shape, dtype=bool)
    np.put_along_axis(chosen, np.argsort(logits, axis=-1)[:, -count:], True, axis=-1)
    return chosen


def _expert(settings: ExpertSettings, layers: Layers, module: str, expert: int, x: Array) -> Array:
    """One expert on the tokens that visit it, [m, d] → [m, d]. Its weights have inputs before outputs.

    LoRA acts on gate and up before they are clamped, under the names ``<module>.<expert>.gate_proj`` and so on.
    """
    weights, limit, own = layers.weights, settings.swiglu_limit, f"{module}.{expert}"
    both = (
        layers.sums.contract(x, weights[f"{module}.gate_up_proj"][expert])
        + weights[f"{module}.gate_up_proj_bias"][expert]
    )
    gate = np.minimum(both[:, ::2] + layers.low_rank(f"{own}.gate_proj", x), limit)
    up = np.clip(both[:, 1::2] + layers.low_rank(f"{own}.up_proj", x), -limit, limit)
    inner = (up + 1.0) * gate / (1.0 + np.exp(-ALPHA * gate))
    out = (
        layers.sums.contract(inner, weights[f"{module}.down_proj"][expert])
        + weights[f"{module}.down_proj_bias"][expert]
    )
    return np.asarray(out + layers.low_rank(f"{own}.down_proj", inner))
