"""What a case asks of LoRA kernels: plain data, made on the host, read by the worker."""

from typing import Literal, Self

from pydantic import Field, model_validator

from kit.attention_spec import Dtype
from kit.measurement import Record

LoraOp = Literal["shrink", "expand", "qkv", "gate-up", "embedding"]


class LoraKernel(Record):
    """One call of a LoRA backend on a batch in which every request has an adapter of its own, or none.

    Attributes:
        op: ``shrink`` is x Aᵀ; ``expand`` adds scaling · x Bᵀ to the base output; ``qkv`` and ``gate-up`` are both, for three and two
            slices at once; ``embedding`` looks up columns of A.
        inputs: size of x, or of the vocabulary for ``embedding``.
        outputs: size of each slice of the output; for ``shrink`` as many slices, whatever their sizes.
        ranks: of every adapter, at most `max_rank`; 0 is no adapter. scalings: of every adapter.
        adapters: index of the adapter of each request. rows: tokens of each request, 0 or more.
        decode: one row for every request, as in decode, where some backends sort rows by adapter.
        seed: of all inputs.
    """

    check: Literal["lora-kernel"] = "lora-kernel"
    op: LoraOp
    inputs: int = Field(ge=1)
    outputs: tuple[int, ...] = Field(min_length=1)
    max_rank: int = Field(ge=1)
    ranks: tuple[int, ...] = Field(min_length=1)
    scalings: tuple[float, ...]
    adapters: tuple[int, ...] = Field(min_length=1)
    rows: tuple[int, ...]
    decode: bool = False
    dtype: Dtype = "float16"
    seed: int = 42

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.ranks) != len(self.scalings) or len(self.adapters) != len(self.rows):
            raise ValueError("expected one scaling for every rank, and one number of rows for every request")
        if max(self.ranks) > self.max_rank or max(self.adapters) >= len(self.ranks):
            raise ValueError("expected ranks up to max_rank, and requests of adapters that are there")
        if self.decode and set(self.rows) != {1}:
            raise ValueError("expected one row for every request in decode")
        return self
