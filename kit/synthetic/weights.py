"""The weights of the synthetic models and adapters, under the names that Hugging Face and PEFT give them."""

import math
from collections.abc import Iterator

import numpy as np

from kit.synthetic.catalogue import AdapterShape, ModelShape
from kit.synthetic.stream import Weights, bell

_NORM_STD = 0.1
_NORM_EXPONENT = 7  # 1 + k/128 is exact in bfloat16 up to 2


def linear_modules(model: ModelShape) -> Iterator[tuple[str, int, int]]:
    """Name, outputs and inputs of every linear module that an adapter targets, layer by layer."""
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    for layer in range(model.layers):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.self_attn.q_proj", queries, model.hidden
        yield f"{prefix}.self_attn.k_proj", keys, model.hidden
        yield f"{prefix}.self_attn.v_proj", keys, model.hidden
        yield f"{prefix}.self_attn.o_proj", model.hidden, queries
        yield f"{prefix}.mlp.gate_proj", model.intermediate, model.hidden
        yield f"{prefix}.mlp.up_proj", model.intermediate, model.hidden
        yield f"{prefix}.mlp.down_proj", model.hidden, model.intermediate


TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def model_weights(model: ModelShape) -> dict[str, Weights]:
    """All tensors, float32: linear weights [outputs, inputs] ~ N(0, 1/inputs), embeddings ~ N(0, 1), norms 1 ± 0.1."""

    def matrix(name: str, rows: int, columns: int, std: float) -> Weights:
        return bell(f"{model.name}/{name}", rows * columns, std).reshape(rows, columns)

    def norm(name: str, size: int) -> Weights:
        return np.float32(1.0) + bell(f"{model.name}/{name}", size, _NORM_STD, _NORM_EXPONENT)

    fan_in = 1.0 / math.sqrt(model.hidden)
    tensors = {
        "model.embed_tokens.weight": matrix("model.embed_tokens.weight", model.vocabulary, model.hidden, 1.0),
        "model.norm.weight": norm("model.norm.weight", model.hidden),
        "lm_head.weight": matrix("lm_head.weight", model.vocabulary, model.hidden, fan_in),
    }
    for module, outputs, inputs in linear_modules(model):
        name = f"{module}.weight"
        tensors[name] = matrix(name, outputs, inputs, 1.0 / math.sqrt(inputs))
    for layer in range(model.layers):
        for norm_name, size in (
            ("input_layernorm", model.hidden),
            ("post_attention_layernorm", model.hidden),
            ("self_attn.q_norm", model.head_dim),
            ("self_attn.k_norm", model.head_dim),
        ):
            name = f"model.layers.{layer}.{norm_name}.weight"
            tensors[name] = norm(name, size)
    return tensors


def adapter_weights(model: ModelShape, adapter: AdapterShape) -> dict[str, Weights]:
    """All tensors, float32: A [rank, inputs] ~ N(0, 1/inputs), B [outputs, rank] ~ N(0, strength²/rank)."""
    tensors = {}
    for module, outputs, inputs in linear_modules(model):
        for part, rows, columns, std in (
            ("lora_A", adapter.rank, inputs, 1.0 / math.sqrt(inputs)),
            ("lora_B", outputs, adapter.rank, adapter.strength / math.sqrt(adapter.rank)),
        ):
            name = f"base_model.model.{module}.{part}.weight"
            label = f"{model.name}/{adapter.name}/{name}"
            tensors[name] = bell(label, rows * columns, std).reshape(rows, columns)
    return tensors
