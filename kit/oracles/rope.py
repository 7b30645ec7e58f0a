"""Rotary positions in float64: Su et al. (arXiv 2104.09864), in the layout of GPT-NeoX, with two ways to stretch them.

- ``llama3``: slow pairs turn `factor` times slower, fast ones as before, in between a linear blend over the number of
  turns within the original context (Llama 3.1, `apply_scaling` in meta-llama/llama-models).
- ``yarn``: the same with a ramp over the index of the pair, and both vectors of a score grow by 0.1 ln(factor) + 1
  (Peng et al., arXiv 2309.00071, sections 3.2 to 3.4; GPT-OSS does not round the ends of the ramp).
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kit.oracles.twice import Array


@dataclass(frozen=True)
class Rope:
    """Parameters, named as in ``rope_parameters`` of config.json; those after `rope_theta` stretch."""

    rope_type: Literal["default", "llama3", "yarn"]
    rope_theta: float
    factor: float = 1.0
    original_max_position_embeddings: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def frequencies(self, head_dim: int) -> Array:
        """Turn per position of each pair of entries, radian: [head_dim / 2]."""
        half = head_dim // 2
        plain: Array = np.power(self.rope_theta, -np.arange(half) / half)
        match self.rope_type:
            case "default":
                return plain
            case "llama3":
                turns = self.original_max_position_embeddings * plain / (2.0 * np.pi)
                kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
            case "yarn":
                start, end = self._pair(self.beta_fast, head_dim), self._pair(self.beta_slow, head_dim)
                if self.truncate:
                    start, end = math.floor(start), math.ceil(end)
                start, end = max(start, 0), min(end, head_dim - 1)
                kept = np.asarray(1.0 - (np.arange(half) - start) / (end - start), dtype=np.float64)
        kept = np.clip(kept, 0.0, 1.0)
        return kept * plain + (1.0 - kept) * plain / self.factor

    @property
    def growth(self) -> float:
        """Factor of the rotated vectors."""
        return 0.1 * math.log(self.factor) + 1.0 if self.rope_type == "yarn" else 1.0

    def _pair(self, turns: float, head_dim: int) -> float:
        """Index, as a real number, of the pair that turns so often within the original context."""
        ratio = self.original_max_position_embeddings / (turns * 2.0 * math.pi)
        return head_dim * math.log(ratio) / (2.0 * math.log(self.rope_theta))

    def rotate(self, x: Array) -> Array:
        """[heads, n, head_dim] at positions 0 … n − 1: pair (i, i + head_dim/2) turns by position · frequency i."""
        half = x.shape[-1] // 2
        angle = np.arange(x.shape[-2])[:, None] * self.frequencies(x.shape[-1])
        first, second = x[..., :half], x[..., half:]
        cos, sin = self.growth * np.cos(angle), self.growth * np.sin(angle)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
