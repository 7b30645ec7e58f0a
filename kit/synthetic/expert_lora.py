"""Seeded inputs of LoRA on experts. What a kernel must not read is NaN: weights of an adapter for experts that it has no token for."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kit.lora_kernel_spec import ExpertLora
from kit.synthetic.lora_kernels import Owner
from kit.synthetic.stream import Weights, bell, words

_STEPS = 64
"""Weights of the router are multiples of 1/64, exact in every dtype."""


@dataclass(frozen=True)
class ExpertLoraInputs:
    """Inputs of one call, as SGLang's buffers hold them; all values are exact in float16 and bfloat16.

    Attributes:
        x: [rows, inputs]; for ``down`` [rows · chosen, inputs], what each chosen expert gave.
        a: [adapters, experts, slices · max_rank, inputs]; an adapter of rank r fills the first r rows of each slice, and the rest is 0.
        b: [adapters, experts, slices · outputs, max_rank]; it fills the first r columns, and the rest is 0.
            Where outer weights are shared, they have one expert.
        base: [rows, chosen, slices · outputs], what the delta is added to.
        visits: the experts of every row, no one twice, [rows, chosen]. shares: what the router gives them, [rows, chosen].
        owner: the adapter of every row, [rows].
    """

    x: Weights
    a: Weights
    b: Weights
    base: Weights
    visits: npt.NDArray[np.int64]
    shares: Weights
    owner: Owner

    def down(self, adapter: int, expert: int) -> Weights:
        """A of this adapter and expert."""
        return np.asarray(self.a[adapter, expert if self.a.shape[1] > 1 else 0])

    def up(self, adapter: int, expert: int) -> Weights:
        """B of this adapter and expert."""
        return np.asarray(self.b[adapter, expert if self.b.shape[1] > 1 else 0])


def expert_lora_inputs(spec: ExpertLora) -> ExpertLoraInputs:
    """Inputs that follow from sizes and seed alone. x and base have standard deviation 1, A 1/√inputs, B 1."""
    rows, adapters, chosen = sum(spec.rows), len(spec.ranks), spec.chosen
    sizes = (spec.place, spec.seed, spec.inputs, spec.outputs, spec.experts, spec.visited, chosen, *spec.ranks, rows)
    label = "/".join(str(part) for part in ("expert-lora", *sizes))
    owner: Owner = np.repeat(np.array(spec.adapters, np.int64), spec.rows)
    keys = words(f"{label}/visits", rows * spec.visited).reshape(rows, spec.visited)
    visits = np.argsort(keys, axis=1, kind="stable")[:, :chosen].astype(np.int64)
    shares = 1 + words(f"{label}/shares", rows * chosen).reshape(rows, chosen) % np.uint64(_STEPS)

    def normal(part: str, *shape: int, std: float = 1.0) -> Weights:
        return bell(f"{label}/{part}", int(np.prod(shape)), std).reshape(shape)

    shared_a, shared_b = (spec.shared_outer and spec.place == place for place in ("gate-up", "down"))
    of_a, of_b = (1 if shared else spec.experts for shared in (shared_a, shared_b))
    a = normal("a", adapters, of_a, spec.slices, spec.max_rank, spec.inputs, std=spec.inputs**-0.5)
    b = normal("b", adapters, of_b, spec.slices * spec.outputs, spec.max_rank)
    for adapter, rank in enumerate(spec.ranks):
        a[adapter, :, :, rank:] = 0.0
        b[adapter, :, :, rank:] = 0.0
        for weights in (a, b):
            _spoil(weights[adapter], visits[owner == adapter], read=rank > 0 or spec.routing == "virtual-experts")
    return ExpertLoraInputs(
        x=normal("x", rows * (chosen if spec.place == "down" else 1), spec.inputs),
        a=a.reshape(adapters, of_a, spec.slices * spec.max_rank, spec.inputs),
        b=b,
        base=normal("base", rows, chosen, spec.slices * spec.outputs),
        visits=visits,
        shares=np.asarray(shares / _STEPS, np.float32),
        owner=owner,
    )


def _spoil(weights: Weights, visits: npt.NDArray[np.int64], read: bool) -> None:
    """NaN for experts that no row visits, [experts, …]; with weights that all experts share, where there is no row at all.

    Args:
        read: SGLang reads the weights of rows without an adapter as well when it has virtual experts, and keeps them 0.
    """
    unread = np.ones(len(weights), np.bool_)
    if read and visits.size:
        unread[visits.ravel() if len(weights) > 1 else 0] = False
    weights[unread] = np.nan
