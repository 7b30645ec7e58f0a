"""The weights of the synthetic adapters, in PEFT's layout; those of experts in the layouts that SGLang reads.

Experts with tensors of their own: ``…mlp.experts.<expert>.<module>.lora_A.weight``, two dimensions. Shared-outer:
``…mlp.experts.<module>.lora_A.weight`` with the expert as first of three dimensions, of size 1 where it is shared.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from kit.synthetic.catalogue import JOINT_EXPERTS, MLP, AdapterShape, ExpertShape, ModelShape
from kit.synthetic.routing import code_places
from kit.synthetic.stream import Weights, bell
from kit.synthetic.weights import DOWN_GAIN, linear_modules

_PREFIX = "base_model.model."
_EMBEDDING = "model.embed_tokens"


class _Adapted(NamedTuple):
    """One adapted module: A [a_experts?, rank, inputs] with entries of `std`, B [b_experts?, outputs, rank].

    Attributes:
        writes: whether its outputs are added to the residual stream.
        a_experts, b_experts: size of the first of three dimensions; None for two.
    """

    name: str
    outputs: int
    inputs: int
    std: float
    writes: bool
    a_experts: int | None = None
    b_experts: int | None = None


def adapter_weights(model: ModelShape, adapter: AdapterShape) -> dict[str, Weights]:
    """All tensors, float32: A [rank, inputs] ~ N(0, 1/inputs), B [outputs, rank] ~ N(0, strength²/rank).

    A is smaller where the module's inputs are large: the change of an expert is to its output as elsewhere. An embedding
    has one-hot inputs, so its A ~ N(0, 1).
    """
    tensors = {}
    for module in _adapted(model, adapter):
        a_name, b_name = _names(module.name)
        a = (*_first(module.a_experts), adapter.rank, module.inputs)
        b = (*_first(module.b_experts), module.outputs, adapter.rank)
        for name, shape, std in ((a_name, a, module.std), (b_name, b, adapter.strength / math.sqrt(adapter.rank))):
            tensors[name] = bell(f"{model.name}/{adapter.name}/{name}", math.prod(shape), std).reshape(shape)
        if module.writes:
            tensors[b_name][..., code_places(model), :] = 0.0
    return tensors


def _adapted(model: ModelShape, adapter: AdapterShape) -> Iterator[_Adapted]:
    """Every module that the adapter targets, in the order of the model."""
    if "embed_tokens" in adapter.modules:
        yield _Adapted(_EMBEDDING, model.hidden, model.vocabulary, 1.0, True)
    for module in linear_modules(model):
        if module.name.rsplit(".", 1)[1] in adapter.modules:
            yield _Adapted(module.name, module.outputs, module.inputs, 1.0 / math.sqrt(module.inputs), module.writes)
    if model.experts is not None:
        yield from _adapted_experts(model, model.experts, adapter)
    if "lm_head" in adapter.modules:
        yield _Adapted("lm_head", model.vocabulary, model.hidden, 1.0 / math.sqrt(model.hidden), False)


def _adapted_experts(model: ModelShape, experts: ExpertShape, adapter: AdapterShape) -> Iterator[_Adapted]:
    for layer in range(model.layers):
        for part in (part for part in adapter.modules if part in (*MLP, *JOINT_EXPERTS)):
            down = part == "down_proj"
            inner = 2 * model.intermediate if part == "gate_up_proj" else model.intermediate
            outputs, inputs = (model.hidden, inner) if down else (inner, model.hidden)
            std = (DOWN_GAIN if down else 1.0) / math.sqrt(inputs)
            prefix = f"model.layers.{layer}.mlp.experts"
            if adapter.shared_outer:
                all_of, shared = experts.count, 1
                a_experts, b_experts = (all_of, shared) if down else (shared, all_of)
                yield _Adapted(f"{prefix}.{part}", outputs, inputs, std, down, a_experts, b_experts)
            else:
                for expert in range(experts.count):
                    yield _Adapted(f"{prefix}.{expert}.{part}", outputs, inputs, std, down)


def _first(experts: int | None) -> tuple[int, ...]:
    return () if experts is None else (experts,)


def _names(module: str) -> tuple[str, str]:
    """Names of A and B in the file."""
    if module == _EMBEDDING:
        return f"{_PREFIX}{module}.lora_embedding_A", f"{_PREFIX}{module}.lora_embedding_B"
    return f"{_PREFIX}{module}.lora_A.weight", f"{_PREFIX}{module}.lora_B.weight"
