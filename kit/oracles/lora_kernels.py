"""The oracle for LoRA kernels: float64, numpy only. y = base + scaling · B A x, Hu et al. (arXiv 2106.09685), section 4.1."""

from functools import cache, partial
from itertools import pairwise

import numpy as np

from kit.lora_kernel_spec import LoraKernel
from kit.oracles.canary import compare
from kit.oracles.twice import Array, Summation, agreed
from kit.synthetic.lora_kernels import LoraInputs


def lora(spec: LoraKernel, inputs: LoraInputs) -> Array:
    """What the call must give.

    Returns:
        [rows, all outputs]; for ``shrink`` and ``embedding`` [rows, slices · max_rank], zero beyond the adapter's own rank.
    Raises:
        OracleDisagreement: two computations differ.
    """
    return agreed(f"LoRA {spec.op}", partial(_lora, spec, inputs))


def _lora(spec: LoraKernel, inputs: LoraInputs, sums: Summation) -> Array:
    slices = len(spec.outputs)
    if spec.op in ("shrink", "embedding"):
        out = np.zeros((len(inputs.x), slices * spec.max_rank))
        for row, rank, low in _low(spec, inputs, sums):
            out[row, : slices * rank] = low
        return out
    out = inputs.base.astype(np.float64)
    ends = np.cumsum((0, *spec.outputs))
    for row, rank, low in _low(spec, inputs, sums):
        adapter = inputs.owner[row]
        for place, (start, end) in enumerate(pairwise(ends)):
            up = inputs.b[adapter, start:end, :rank].astype(np.float64)
            part = low[place * rank : (place + 1) * rank]
            out[row, start:end] += spec.scalings[adapter] * sums.contract(up, part[:, None])[:, 0]
    return out


def _low(spec: LoraKernel, inputs: LoraInputs, sums: Summation) -> list[tuple[int, int, Array]]:
    """Row, rank and A x of every row with an adapter."""
    found, slices = [], len(spec.outputs)
    for row, adapter in enumerate(inputs.owner.tolist()):
        rank = spec.ranks[adapter]
        if rank == 0:
            continue
        down = inputs.a[adapter, : slices * rank].astype(np.float64)
        match spec.op:
            case "embedding":
                low = down[:, int(inputs.x[row])]
            case "expand":
                low = inputs.x[row, : slices * rank].astype(np.float64)
            case _:
                low = sums.contract(down, inputs.x[row].astype(np.float64)[:, None])[:, 0]
        found.append((row, rank, low))
    return found


@cache
def check_known() -> None:
    """An answer worked by hand, once per process.

    Two slices of size 1, rank 1, scaling 3/2. x = (1, 2); A has the rows (1, 1) and (2, −1), so A x = (3, 0); B is 4 and 5;
    the base is (1, 1). The delta is 3/2 · (4·3, 5·0): (19, 1). A row without an adapter keeps its base.

    Raises:
        OracleDisagreement: the oracle gives another one.
    """
    spec = LoraKernel(
        op="gate-up",
        inputs=2,
        outputs=(1, 1),
        max_rank=1,
        ranks=(1, 0),
        scalings=(1.5, 1.0),
        adapters=(0, 1),
        rows=(1, 1),
    )
    given = LoraInputs(
        x=np.array([[1.0, 2.0], [1.0, 2.0]], np.float32),
        a=np.array([[[1.0, 1.0], [2.0, -1.0]], [[np.nan, np.nan], [np.nan, np.nan]]], np.float32),
        b=np.array([[[4.0], [5.0]], [[np.nan], [np.nan]]], np.float32),
        base=np.ones((2, 2), np.float32),
        owner=np.array([0, 1]),
    )
    compare("LoRA kernels", lora(spec, given).ravel(), (19.0, 1.0, 1.0, 1.0))
