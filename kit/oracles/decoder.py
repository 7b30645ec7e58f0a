"""The oracle for decoders with LoRA: log-probabilities in float64, numpy only.

It shares no code with what it judges: no torch, transformers, peft or SGLang. Formulas:
- decoder, grouped-query attention, RMSNorm, SwiGLU: Llama 2 (arXiv 2307.09288), section 2.2; Llama 3 alike;
- per-head normalisation of queries and keys: Qwen3 technical report (arXiv 2505.09388), section 2;
- attention biases, sliding window, sinks: GPT-OSS model card (arXiv 2508.10925), section 2, and openai/gpt-oss;
- rotary positions: `kit.oracles.rope`; experts: `kit.oracles.experts`;
- LoRA: y = W x + (alpha / r) · B (A x), Hu et al. (arXiv 2106.09685), section 4.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from kit.oracles.experts import ExpertSettings, mixture
from kit.oracles.layers import Adapter, Layers, Weights
from kit.oracles.rope import Rope
from kit.oracles.twice import FORWARD, Array, Summation, agreed


@dataclass(frozen=True)
class DecoderSettings:
    """What the formulas need besides weights; named as in config.json.

    Attributes:
        windows: per layer how many tokens attention sees, the own one included; None is all.
        experts: None for one SwiGLU MLP per layer.
    """

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: Rope
    windows: tuple[int | None, ...]
    experts: ExpertSettings | None = None


def next_logprobs(settings: DecoderSettings, weights: Weights, adapter: Adapter, tokens: Sequence[int]) -> Array:
    """Log-probability of every token of the vocabulary to come next, after each prefix of the text.

    Args:
        tokens: n token ids, n ≥ 1.
    Returns:
        [n, vocabulary], nat; row t follows tokens 0 … t.
    Raises:
        OracleDisagreement: two computations differ.
    """
    return agreed("next-token logprobs", partial(_logprobs, settings, weights, adapter, np.asarray(tokens)))


def next_logprobs_once(settings: DecoderSettings, weights: Weights, adapter: Adapter, tokens: Sequence[int]) -> Array:
    """As `next_logprobs`, in one computation: for what is no reference."""
    return _logprobs(settings, weights, adapter, np.asarray(tokens), FORWARD)


def prompt_logprobs(settings: DecoderSettings, weights: Weights, adapter: Adapter, tokens: Sequence[int]) -> Array:
    """Log-probability of token t given the tokens before it, for t ≥ 1.

    Args:
        tokens: n token ids, n ≥ 2.
    Returns:
        [n − 1], nat.
    Raises:
        OracleDisagreement: two computations differ.
    """
    return of_tokens(next_logprobs(settings, weights, adapter, tokens), tokens)


def of_tokens(following: Array, tokens: Sequence[int]) -> Array:
    """From what `next_logprobs` gave for a text, those of the text's own tokens 1 … n − 1."""
    return np.asarray(following[np.arange(len(tokens) - 1), np.asarray(tokens)[1:]])


def _logprobs(settings: DecoderSettings, weights: Weights, adapter: Adapter, tokens: Array, sums: Summation) -> Array:
    logits = _Decoder(settings, Layers(weights, adapter, sums)).logits(tokens)
    logits -= logits.max(axis=-1, keepdims=True)
    return np.asarray(logits - np.log(sums.total(np.exp(logits))))


@dataclass(frozen=True)
class _Decoder:
    """One forward pass. n is the number of tokens, d the hidden size."""

    settings: DecoderSettings
    layers: Layers

    def logits(self, tokens: Array) -> Array:
        """[n] → [n, vocabulary]."""
        x = self.layers.embed("model.embed_tokens", tokens)
        for index, window in enumerate(self.settings.windows):
            layer = f"model.layers.{index}"
            x = x + self.attention(f"{layer}.self_attn", self.norm(f"{layer}.input_layernorm", x), window)
            x = x + self.mlp(f"{layer}.mlp", self.norm(f"{layer}.post_attention_layernorm", x))
        return self.layers.linear("lm_head", self.norm("model.norm", x))

    def norm(self, module: str, x: Array) -> Array:
        """RMSNorm with the model's ε."""
        return self.layers.norm(module, x, self.settings.rms_norm_eps)

    def attention(self, module: str, x: Array, window: int | None) -> Array:
        """Causal grouped-query attention: [n, d] → [n, d]. Heads come first inside: [heads, n, head_dim]."""
        s, sums = self.settings, self.layers.sums
        q = s.rope.rotate(self.heads(f"{module}.q_proj", x, s.num_attention_heads, f"{module}.q_norm"))
        k = s.rope.rotate(self.heads(f"{module}.k_proj", x, s.num_key_value_heads, f"{module}.k_norm"))
        v = self.heads(f"{module}.v_proj", x, s.num_key_value_heads)
        group = s.num_attention_heads // s.num_key_value_heads
        k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
        scores = sums.contract(q, k.swapaxes(-1, -2)) / np.sqrt(s.head_dim)
        scores = np.where(_unseen(len(x), window), -np.inf, scores)
        shares = self.softmax(scores, self.layers.weights.get(f"{module}.sinks"))
        return self.layers.linear(f"{module}.o_proj", sums.contract(shares, v).swapaxes(0, 1).reshape(len(x), -1))

    def softmax(self, scores: Array, sinks: Array | None) -> Array:
        """Softmax over the last axis of [heads, n, n]; a head's sink is one more score, whose share goes nowhere."""
        peak = scores.max(axis=-1, keepdims=True)
        if sinks is None:
            shares = np.exp(scores - peak)
            return np.asarray(shares / self.layers.sums.total(shares))
        sink = sinks[:, None, None]
        peak = np.maximum(peak, sink)
        shares = np.exp(scores - peak)
        return np.asarray(shares / (self.layers.sums.total(shares) + np.exp(sink - peak)))

    def heads(self, module: str, x: Array, count: int, norm: str | None = None) -> Array:
        """Project, split, and normalise where the model does: [n, d] → [count, n, head_dim]."""
        split = self.layers.linear(module, x).reshape(len(x), count, self.settings.head_dim).swapaxes(0, 1)
        return self.norm(norm, split) if norm and f"{norm}.weight" in self.layers.weights else split

    def mlp(self, module: str, x: Array) -> Array:
        """Experts, or SwiGLU: down(silu(gate x) · up x), [n, d] → [n, d]."""
        if self.settings.experts is not None:
            return mixture(self.settings.experts, self.layers, module, x)
        gate, up = self.layers.linear(f"{module}.gate_proj", x), self.layers.linear(f"{module}.up_proj", x)
        return self.layers.linear(f"{module}.down_proj", gate / (1.0 + np.exp(-gate)) * up)


def _unseen(count: int, window: int | None) -> npt.NDArray[np.bool_]:
    """Whether token t (row) may not see token s (column): s > t, or s ≤ t − window."""
    behind = np.arange(count)[:, None] - np.arange(count)
    return (behind < 0) if window is None else (behind < 0) | (behind >= window)
