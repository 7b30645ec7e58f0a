"""Seeded inputs of LoRA kernel cases. What a kernel must not read is NaN: the rank beyond an adapter's own."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kit.lora_kernel_spec import LoraKernel
from kit.synthetic.draws import below
from kit.synthetic.stream import Weights, bell

Owner: TypeAlias = npt.NDArray[np.int64]
"""The adapter of every row."""


@dataclass(frozen=True)
class LoraInputs:
    """Inputs of one call; all values are exact in float16 and bfloat16.

    Attributes:
        x: [rows, inputs]; for ``expand`` [rows, slices · max_rank]; for ``embedding`` token ids, [rows].
        a: [adapters, slices · max_rank, inputs]; an adapter of rank r fills its first slices · r rows, slice by slice.
        b: [adapters, all outputs, max_rank]; an adapter of rank r fills its first r columns.
        base: [rows, all outputs], what the delta is added to.
        owner: the adapter of every row, [rows].
    """

    x: Weights | npt.NDArray[np.int64]
    a: Weights
    b: Weights
    base: Weights
    owner: Owner


def lora_inputs(spec: LoraKernel) -> LoraInputs:
    """Inputs that follow from sizes and seed alone. x and base have standard deviation 1, A 1/√inputs, B 1."""
    slices, total, rows = len(spec.outputs), sum(spec.outputs), sum(spec.rows)
    label = "/".join(str(part) for part in ("lora", spec.op, spec.seed, spec.inputs, *spec.outputs, *spec.ranks, rows))

    def normal(part: str, *shape: int, std: float = 1.0) -> Weights:
        return bell(f"{label}/{part}", int(np.prod(shape)), std).reshape(shape)

    a = normal("a", len(spec.ranks), slices * spec.max_rank, spec.inputs, std=spec.inputs**-0.5)
    b = normal("b", len(spec.ranks), total, spec.max_rank)
    for adapter, rank in enumerate(spec.ranks):
        a[adapter, slices * rank :] = np.nan
        b[adapter, :, rank:] = np.nan
    owner = np.repeat(np.array(spec.adapters), spec.rows)
    if spec.op == "embedding":
        x: Weights | npt.NDArray[np.int64] = np.array(below(f"{label}/tokens", rows, spec.inputs), np.int64)
    elif spec.op == "expand":
        x = normal("x", rows, slices * spec.max_rank)
        for row, adapter in enumerate(owner):
            x[row, slices * spec.ranks[adapter] :] = np.nan
    else:
        x = normal("x", rows, spec.inputs)
    return LoraInputs(x, a, b, normal("base", rows, total), owner)
