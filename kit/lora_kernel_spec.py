"""What a case asks of LoRA kernels: plain data, made on the host, read by the worker."""

from typing import Literal, Self

from pydantic import Field, model_validator

from kit.attention_spec import Dtype
from kit.measurement import Record

LoraOp = Literal["shrink", "expand", "qkv", "gate-up", "embedding"]


class LoraBatch(Record):
    """A batch in which every request has an adapter of its own, or none.

    Attributes:
        max_rank: of the engine's buffers. ranks: of every adapter, at most `max_rank`; 0 is no adapter.
        adapters: index of the adapter of each request. rows: tokens of each request, 0 or more.
        decode: one row for every request, as in decode, where some backends sort rows by adapter.
        seed: of all inputs.
    """

    max_rank: int = Field(ge=1)
    ranks: tuple[int, ...] = Field(min_length=1)
    adapters: tuple[int, ...] = Field(min_length=1)
    rows: tuple[int, ...]
    decode: bool = False
    dtype: Dtype = "float16"
    seed: int = 42

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.adapters) != len(self.rows):
            raise ValueError("expected one number of rows for every request")
        if max(self.ranks) > self.max_rank or max(self.adapters) >= len(self.ranks):
            raise ValueError("expected ranks up to max_rank, and requests of adapters that are there")
        if self.decode and set(self.rows) != {1}:
            raise ValueError("expected one row for every request in decode")
        return self


class LoraKernel(LoraBatch):
    """One call of a LoRA backend.

    Attributes:
        op: ``shrink`` is x Aᵀ; ``expand`` adds scaling · x Bᵀ to the base output; ``qkv`` and ``gate-up`` are both, for three and two
            slices at once; ``embedding`` looks up columns of A.
        inputs: size of x, or of the vocabulary for ``embedding``.
        outputs: size of each slice of the output; for ``shrink`` as many slices, whatever their sizes.
        scalings: of every adapter.
    """

    check: Literal["lora-kernel"] = "lora-kernel"
    op: LoraOp
    inputs: int = Field(ge=1)
    outputs: tuple[int, ...] = Field(min_length=1)
    scalings: tuple[float, ...]

    @model_validator(mode="after")
    def _one_scaling_each(self) -> Self:
        if len(self.ranks) != len(self.scalings):
            raise ValueError("expected one scaling for every rank")
        return self


class ExpertLora(LoraBatch):
    """One call of SGLang's LoRA on a mixture of experts: every token visits some experts, and every adapter changes every expert.

    The adapters' scalings are in B already, where SGLang puts them when it loads an adapter of experts.

    Attributes:
        place: ``gate-up`` adds B A x to what the first projection of an expert gave, for two slices; ``down`` adds it to the second,
            times the weight that the router gave the expert.
        routing: how SGLang sorts tokens: ``by-adapter`` and then by expert, or with every pair of adapter and expert as a
            ``virtual-experts``, which is its ``lora_use_virtual_experts``.
        experts: how many there are. visited: only the first so many have tokens. chosen: experts of a token.
        shared_outer: A of ``gate-up`` and B of ``down`` are one for all experts (``experts_shared_outer_loras``).
        inputs: size of x. outputs: size of a slice of the output.
    """

    check: Literal["expert-lora"] = "expert-lora"
    place: Literal["gate-up", "down"]
    routing: Literal["by-adapter", "virtual-experts"] = "by-adapter"
    experts: int = Field(ge=1)
    visited: int = Field(ge=1)
    chosen: int = Field(ge=1)
    shared_outer: bool = False
    inputs: int = Field(ge=1)
    outputs: int = Field(ge=1)

    @property
    def slices(self) -> int:
        """Products with weights of their own: two for gate and up."""
        return 2 if self.place == "gate-up" else 1

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if not self.chosen <= self.visited <= self.experts:
            raise ValueError("expected as many experts as are visited, and as many visited as a token chooses")
        return self
