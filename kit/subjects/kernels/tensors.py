"""From arrays to tensors on the device, with poison in everything that must not matter."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from kit.attention_spec import AttentionSpec, Cached, Dtype
from kit.oracles.metrics import Values
from kit.subjects.kernels.library import Poison
from kit.synthetic.attention import AttentionInputs

PADDED_ROWS = 3
"""Rows after the last one, as in a batch that was padded for a CUDA graph."""
_HUGE = 1e30
_SPARE = 4 << 30
"""Bytes left to everything else, such as sessions that start meanwhile."""


@dataclass(frozen=True)
class Placing:
    """Where tensors go, in which dtype, and what fills the rest. `first_slot`: of the cache (`kit.attention_spec.Cached`)."""

    device: str
    dtype: Dtype
    poison: Poison
    first_slot: int = 0

    @classmethod
    def of(cls, spec: AttentionSpec, device: str, poison: Poison) -> "Placing":
        """For an attention case."""
        return cls(device, spec.dtype, poison, first_slot(spec))

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

    def cache(self, array: Any) -> torch.Tensor:
        """As `tensor`, from `first_slot` on in a cache of which nothing else is filled but what may be read by mistake."""
        held = self.tensor(array)
        if self.first_slot == 0:
            return held
        end = self.first_slot + len(held)
        whole = torch.empty(end + PADDED_ROWS, *held.shape[1:], dtype=held.dtype, device=self.device)
        for near in (whole[: len(held)], whole[self.first_slot - PADDED_ROWS : self.first_slot], whole[end:]):
            near.fill_(self.fill(held.dtype))
        whole[self.first_slot : end] = held
        return whole

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


def first_slot(spec: AttentionSpec) -> int:
    """Where the case's slots begin in the cache on the device."""
    return spec.first_slot if isinstance(spec, Cached) else 0


def moved(spec: AttentionSpec, inputs: AttentionInputs) -> AttentionInputs:
    """The inputs with the slots as they are on the device; keys and values stay where they are."""
    first = first_slot(spec)
    return replace(inputs, pages=tuple(slots + first for slots in inputs.pages)) if first else inputs


def no_room(spec: AttentionSpec, device: str) -> str | None:
    """Why a cache that is mostly empty cannot be had; None if it can. A processor's memory is taken only where it is written."""
    if not (isinstance(spec, Cached) and spec.far):
        return None
    item = torch.finfo(getattr(torch, spec.dtype)).bits // 8
    needed = item * spec.first_slot * spec.kv_heads * (spec.head_dim + spec.value_dim)
    told = f"a cache of {needed / 2**30:.0f} GiB does not fit"
    if device == "cpu":
        try:
            torch.empty(needed, dtype=torch.uint8)
        except RuntimeError as error:
            return f"{told}: {error}"
        return None
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    return None if needed + _SPARE <= free else f"{told} into the {free / 2**30:.0f} GiB of the GPU that are free"


def give_back(spec: AttentionSpec, device: str) -> None:
    """Let other processes on this GPU have the memory of such a cache."""
    if isinstance(spec, Cached) and spec.far and device == "cuda":
        torch.cuda.empty_cache()


def float64(tensor: torch.Tensor) -> Values:
    """As a numpy array."""
    return np.asarray(tensor.detach().double().cpu().numpy(), dtype=np.float64)


def starts(lengths: tuple[int, ...]) -> list[int]:
    """0, then the running sum: where each request begins, and the end of the last."""
    return [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
