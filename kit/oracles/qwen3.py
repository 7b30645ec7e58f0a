"""The oracle for Qwen3 with LoRA: prompt logprobs in float64, numpy only.

It shares no code with what it judges: no torch, transformers, peft or SGLang. Formulas:
- decoder, grouped-query attention, RMSNorm, SwiGLU: Qwen3 technical report (arXiv 2505.09388), section 2;
- per-head normalisation of queries and keys: the same;
- rotary positions, halves rotated against each other: Su et al. (arXiv 2104.09864), in the layout of GPT-NeoX;
- LoRA: y = W x + (alpha / r) · B (A x), Hu et al. (arXiv 2106.09685), section 4.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kit.oracles.twice import Array, Summation, agreed


@dataclass(frozen=True)
class Qwen3Settings:
    """What the formulas need besides weights; named as in config.json."""

    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float


@dataclass(frozen=True)
class LowRank:
    """One adapted module: `a` [rank, inputs], `b` [outputs, rank], `scaling` alpha / rank."""

    a: Array
    b: Array
    scaling: float


Weights = Mapping[str, Array]
Adapter = Mapping[str, LowRank]
"""Adapted modules by module name, such as ``model.layers.0.self_attn.q_proj``."""

NO_ADAPTER: Adapter = {}


def prompt_logprobs(settings: Qwen3Settings, weights: Weights, adapter: Adapter, tokens: Sequence[int]) -> Array:
    """Log-probability of token t given the tokens before it, for t ≥ 1.

    Args:
        tokens: n token ids, n ≥ 2.
    Returns:
        [n − 1], nat.
    Raises:
        OracleDisagreement: two computations differ.
    """
    return agreed("prompt logprobs", partial(_logprobs, settings, weights, adapter, np.asarray(tokens)))


def _logprobs(settings: Qwen3Settings, weights: Weights, adapter: Adapter, tokens: Array, sums: Summation) -> Array:
    model = _Decoder(settings, weights, adapter, sums)
    logits = model.logits(tokens)[:-1]
    peak = logits.max(axis=-1, keepdims=True)
    logprobs = logits - peak - np.log(sums.total(np.exp(logits - peak)))
    return np.asarray(logprobs[np.arange(len(tokens) - 1), tokens[1:]])


@dataclass(frozen=True)
class _Decoder:
    """One forward pass; every sum runs in the order that `sums` gives. n is the number of tokens, d the hidden size."""

    settings: Qwen3Settings
    weights: Weights
    adapter: Adapter
    sums: Summation

    def logits(self, tokens: Array) -> Array:
        """[n] → [n, vocabulary]."""
        x = self.weights["model.embed_tokens.weight"][tokens]
        for index in range(self.settings.num_hidden_layers):
            layer = f"model.layers.{index}"
            x = x + self.attention(f"{layer}.self_attn", self.norm(f"{layer}.input_layernorm", x))
            x = x + self.mlp(f"{layer}.mlp", self.norm(f"{layer}.post_attention_layernorm", x))
        return self.linear("lm_head", self.norm("model.norm", x))

    def linear(self, module: str, x: Array) -> Array:
        """W x + scaling · B (A x): [n, inputs] → [n, outputs]."""
        y = self.sums.contract(x, self.weights[f"{module}.weight"].T)
        if module in self.adapter:
            low = self.adapter[module]
            y = y + low.scaling * self.sums.contract(self.sums.contract(x, low.a.T), low.b.T)
        return y

    def norm(self, module: str, x: Array) -> Array:
        """RMSNorm over the last axis: w · x / √(mean(x²) + ε)."""
        mean_square = self.sums.total(x * x) / x.shape[-1]
        return np.asarray(self.weights[f"{module}.weight"] * x / np.sqrt(mean_square + self.settings.rms_norm_eps))

    def attention(self, module: str, x: Array) -> Array:
        """Causal grouped-query attention: [n, d] → [n, d]. Heads come first inside: [heads, n, head_dim]."""
        s = self.settings
        q = self.heads(f"{module}.q_proj", x, s.num_attention_heads)
        k = self.heads(f"{module}.k_proj", x, s.num_key_value_heads)
        v = self.heads(f"{module}.v_proj", x, s.num_key_value_heads)
        q = self.rotate(self.norm(f"{module}.q_norm", q))
        k = self.rotate(self.norm(f"{module}.k_norm", k))
        group = s.num_attention_heads // s.num_key_value_heads
        k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
        scores = self.sums.contract(q, k.swapaxes(-1, -2)) / np.sqrt(s.head_dim)
        future = np.triu(np.ones(scores.shape[-2:], dtype=bool), k=1)
        scores = np.where(future, -np.inf, scores)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = self.sums.contract(weights / self.sums.total(weights), v)
        return self.linear(f"{module}.o_proj", mixed.swapaxes(0, 1).reshape(len(x), -1))

    def heads(self, module: str, x: Array, count: int) -> Array:
        """Project and split: [n, d] → [count, n, head_dim]."""
        return self.linear(module, x).reshape(len(x), count, self.settings.head_dim).swapaxes(0, 1)

    def rotate(self, x: Array) -> Array:
        """Rotary positions on [heads, n, head_dim]: pair (i, i + head_dim/2) turns by position · θ^(−2i/head_dim)."""
        half = x.shape[-1] // 2
        frequency = self.settings.rope_theta ** (-np.arange(half) / half)
        angle = np.arange(x.shape[-2])[:, None] * frequency
        first, second = x[..., :half], x[..., half:]
        cos, sin = np.cos(angle), np.sin(angle)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def mlp(self, module: str, x: Array) -> Array:
        """SwiGLU: down(silu(gate x) · up x), [n, d] → [n, d]."""
        gate, up = self.linear(f"{module}.gate_proj", x), self.linear(f"{module}.up_proj", x)
        return self.linear(f"{module}.down_proj", gate / (1.0 + np.exp(-gate)) * up)
