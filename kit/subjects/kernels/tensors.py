"""From arrays to tensors on the device, with poison in everything that must not matter."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kit.attention_spec import Dtype
from kit.oracles.metrics import Values
from kit.subjects.kernels.library import Poison

PADDED_ROWS = 3
"""Rows after the last one, as in a batch that was padded for a CUDA graph."""
_HUGE = 1e30


@dataclass(frozen=True)
class Placing:
    """Where tensors go, in which dtype, and what fills the rest."""

    device: str
    dtype: Dtype
    poison: Poison

    def fill(self, dtype: torch.dtype) -> float:
        """The poison in this dtype."""
        return float("nan") if self.poison == "nan" else min(_HUGE, torch.finfo(dtype).max)

    def tensor(self, array: Any) -> torch.Tensor:
        """In the case's dtype; NaN, which marks unused slots, becomes the poison."""
        held = torch.from_numpy(np.ascontiguousarray(array)).to(self.device, getattr(torch, self.dtype))
        return torch.where(torch.isnan(held), self.fill(held.dtype), held)

    def padded(self, array: Any) -> torch.Tensor:
        """As `tensor`, as a view of the first rows of a larger one; the rest is poison."""
        held = self.tensor(array)
        whole = self.workspace(len(held) + PADDED_ROWS, *held.shape[1:], dtype=held.dtype)
        whole[: len(held)] = held
        return whole[: len(held)]

    def workspace(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Nothing but poison."""
        return torch.full(shape, self.fill(dtype), dtype=dtype, device=self.device)

    def output(self, *shape: int) -> "Output":
        """An output to be written, with padded rows behind it."""
        return Output(self.workspace(shape[0] + PADDED_ROWS, *shape[1:], dtype=getattr(torch, self.dtype)), shape[0])

    def integers(self, values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """A vector of integers on the device."""
        return torch.as_tensor(np.asarray(values), dtype=dtype, device=self.device)


@dataclass(frozen=True)
class Output:
    """Rows to be written, and rows behind them that must keep their poison."""

    whole: torch.Tensor
    count: int

    @property
    def rows(self) -> torch.Tensor:
        """What the kernel may write."""
        return self.whole[: self.count]

    def values(self) -> Values:
        """What was written, in float64."""
        return float64(self.rows)

    def overwritten(self) -> int:
        """How many values behind the rows changed."""
        rest = self.whole[self.count :]
        kept = torch.isnan(rest) if bool(torch.isnan(rest).any()) else rest == rest.flatten()[0]
        return int((~kept).sum().item())


def float64(tensor: torch.Tensor) -> Values:
    """As a numpy array."""
    return np.asarray(tensor.detach().double().cpu().numpy(), dtype=np.float64)


def starts(lengths: tuple[int, ...]) -> list[int]:
    """0, then the running sum: where each request begins, and the end of the last."""
    return [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
