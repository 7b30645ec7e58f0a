"""LoRA kernel cases: every operation, on batches that mix ranks from 0 to the largest and requests of 0, 1 and many rows."""

from collections.abc import Iterator
from typing import NamedTuple

from kit.attention_spec import Dtype
from kit.lora_kernel_spec import LoraKernel, LoraOp

MAX_RANK = 64
"""One for all cases, as an engine has one: SGLang keeps csgmv's kernels under keys that do not hold it."""


class Batch(NamedTuple):
    """Ranks and scalings of the adapters (no scaling is a power of two), the adapter of each request, and its rows."""

    ranks: tuple[int, ...]
    scalings: tuple[float, ...]
    adapters: tuple[int, ...]
    rows: tuple[int, ...]
    decode: bool = False


RANKS = (8, 0, 64, 1, 16, 33)
_SCALINGS = (1.625, 1.0, 0.6875, 3.25, 1.375, 0.8125)
BATCHES = {
    "mixed": Batch(RANKS, _SCALINGS, (0, 1, 2, 3, 4, 5, 0), (5, 1, 17, 1, 0, 33, 16)),
    "decode": Batch(RANKS, _SCALINGS, (2, 0, 1, 0, 5, 2, 3), (1,) * 7, decode=True),
    "one": Batch(RANKS, _SCALINGS, (2,), (130,)),
    "none": Batch(RANKS, _SCALINGS, (1, 1), (3, 2)),
}
_OUTPUTS: dict[LoraOp, tuple[int, ...]] = {
    "shrink": (48, 48, 48),
    "expand": (300,),
    "qkv": (96, 40, 40),
    "gate-up": (72, 72),
    "embedding": (64,),
}
_INPUTS = {"small": 80, "large": 1056}


def cases(whole: bool, dtype: Dtype) -> Iterator[tuple[str, str, LoraKernel]]:
    """Operation, aspect and spec; an interpreter does the small inputs alone, and not the long request."""
    for op, outputs in _OUTPUTS.items():
        for name, batch in BATCHES.items():
            for size, inputs in _INPUTS.items():
                if not whole and (size == "large" or name == "one"):
                    continue
                spec = LoraKernel(
                    op=op, inputs=inputs, outputs=outputs, max_rank=MAX_RANK, dtype=dtype, **batch._asdict()
                )
                yield op, f"{name}-{size}" if whole else name, spec
