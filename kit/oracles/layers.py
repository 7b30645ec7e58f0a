"""What every block of the decoder oracle is made of: linear modules with LoRA, RMSNorm, softmax. numpy only, float64."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kit.oracles.twice import Array, Summation


@dataclass(frozen=True)
class LowRank:
    """One adapted module: `a` [rank, inputs], `b` [outputs, rank], `scaling` alpha / rank."""

    a: Array
    b: Array
    scaling: float


Weights = Mapping[str, Array]
"""Tensors by name, as in the model's files."""

Adapter = Mapping[str, LowRank]
"""Adapted modules by module name, such as ``model.layers.0.self_attn.q_proj``."""

NO_ADAPTER: Adapter = {}


@dataclass(frozen=True)
class Layers:
    """The weights of a model with an adapter; every sum runs in the order that `sums` gives."""

    weights: Weights
    adapter: Adapter
    sums: Summation

    def linear(self, module: str, x: Array) -> Array:
        """W x + bias, if there is one, + LoRA: [n, inputs] → [n, outputs]."""
        y = self.sums.contract(x, self.weights[f"{module}.weight"].T)
        if (bias := self.weights.get(f"{module}.bias")) is not None:
            y = y + bias
        return y + self.low_rank(module, x)

    def low_rank(self, module: str, x: Array) -> Array | float:
        """scaling · B (A x), [n, inputs] → [n, outputs]; 0 where the module is not adapted."""
        if module not in self.adapter:
            return 0.0
        low = self.adapter[module]
        return low.scaling * self.sums.contract(self.sums.contract(x, low.a.T), low.b.T)

    def embed(self, module: str, tokens: Array) -> Array:
        """Row of each token, [n] → [n, d]; LoRA sees a token as a one-hot vector, so A x is a column of A."""
        x = self.weights[f"{module}.weight"][tokens]
        if module in self.adapter:
            low = self.adapter[module]
            x = x + low.scaling * self.sums.contract(low.a[:, tokens].T, low.b.T)
        return np.asarray(x)

    def norm(self, module: str, x: Array, epsilon: float) -> Array:
        """RMSNorm over the last axis: w · x / √(mean(x²) + ε)."""
        mean_square = self.sums.total(x * x) / x.shape[-1]
        return np.asarray(self.weights[f"{module}.weight"] * x / np.sqrt(mean_square + epsilon))
