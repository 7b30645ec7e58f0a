"""The weights of the synthetic models, under the names that Hugging Face gives them."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kit.synthetic.catalogue import ExpertShape, ModelShape
from kit.synthetic.routing import code_places, codes, router_weights
from kit.synthetic.stream import Weights, bell

_NORM_STD = 0.1
_NORM_EXPONENT = 7  # 1 + k/128 is exact in bfloat16 up to 2
_BIAS_STD = 0.25
_SINK_MEAN, _SINK_STD, _SINK_EXPONENT = 2.0, 0.75, 5  # e² against the sum of exp(N(0, 1)) over tens of tokens
_GATE_BIAS_STD = 2.5  # of gate and up: with weights of their own about 1 % of them reach the limit 7
DOWN_GAIN = 0.2  # (up + 1) · gate · sigmoid(1.702 gate) is about 5 in size, so that an expert adds about 1


class Linear(NamedTuple):
    """A linear module that an adapter may target.

    Attributes:
        name: such as ``model.layers.0.self_attn.q_proj``.
        writes: whether its outputs are added to the residual stream.
    """

    name: str
    outputs: int
    inputs: int
    writes: bool


def linear_modules(model: ModelShape) -> Iterator[Linear]:
    """Every linear module of every layer, experts left out."""
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    for layer in range(model.layers):
        prefix = f"model.layers.{layer}"
        yield Linear(f"{prefix}.self_attn.q_proj", queries, model.hidden, False)
        yield Linear(f"{prefix}.self_attn.k_proj", keys, model.hidden, False)
        yield Linear(f"{prefix}.self_attn.v_proj", keys, model.hidden, False)
        yield Linear(f"{prefix}.self_attn.o_proj", model.hidden, queries, True)
        if model.experts is None:
            yield Linear(f"{prefix}.mlp.gate_proj", model.intermediate, model.hidden, False)
            yield Linear(f"{prefix}.mlp.up_proj", model.intermediate, model.hidden, False)
            yield Linear(f"{prefix}.mlp.down_proj", model.hidden, model.intermediate, True)


def model_weights(model: ModelShape) -> dict[str, Weights]:
    """All tensors, float32: linear weights [outputs, inputs] ~ N(0, 1/inputs), embeddings ~ N(0, 1), norms 1 ± 0.1."""
    fan_in = 1.0 / math.sqrt(model.hidden)
    tensors = {
        "model.embed_tokens.weight": _drawn(model, "model.embed_tokens.weight", 1.0, model.vocabulary, model.hidden),
        "model.norm.weight": _norm(model, "model.norm.weight", model.hidden),
        "lm_head.weight": _drawn(model, "lm_head.weight", fan_in, model.vocabulary, model.hidden),
    }
    for module in linear_modules(model):
        name = f"{module.name}.weight"
        tensors[name] = _drawn(model, name, 1.0 / math.sqrt(module.inputs), module.outputs, module.inputs)
        if model.family == "gpt_oss":
            tensors[f"{module.name}.bias"] = _drawn(model, f"{module.name}.bias", _BIAS_STD, module.outputs)
    norms = {"input_layernorm": model.hidden, "post_attention_layernorm": model.hidden}
    if model.family == "qwen3":
        norms |= {"self_attn.q_norm": model.head_dim, "self_attn.k_norm": model.head_dim}
    for layer in range(model.layers):
        for norm_name, size in norms.items():
            name = f"model.layers.{layer}.{norm_name}.weight"
            tensors[name] = _norm(model, name, size)
        if model.experts is not None:
            tensors |= _expert_layer(model, model.experts, layer)
    if model.experts is not None:
        _carry_codes(model, model.experts, tensors)
    return tensors


def _drawn(model: ModelShape, name: str, std: float, *shape: int) -> Weights:
    return bell(f"{model.name}/{name}", math.prod(shape), std).reshape(shape)


def _norm(model: ModelShape, name: str, size: int) -> Weights:
    return np.float32(1.0) + bell(f"{model.name}/{name}", size, _NORM_STD, _NORM_EXPONENT)


def _expert_layer(model: ModelShape, experts: ExpertShape, layer: int) -> dict[str, Weights]:
    """Sinks, router and experts of a layer. Gate and up are interleaved, inputs come before outputs, as in GPT-OSS.

    Sinks are exact in bfloat16, in which SGLang keeps them whatever the model's dtype.
    """
    prefix, hidden, inner = f"model.layers.{layer}", model.hidden, model.intermediate
    sinks, gate_up, down = (
        f"{prefix}.self_attn.sinks",
        f"{prefix}.mlp.experts.gate_up_proj",
        f"{prefix}.mlp.experts.down_proj",
    )
    drawn = bell(f"{model.name}/{sinks}", model.heads, _SINK_STD, _SINK_EXPONENT)
    router = router_weights(model, experts, layer)
    return {
        sinks: np.float32(_SINK_MEAN) + drawn,
        f"{prefix}.mlp.router.weight": router["weight"],
        f"{prefix}.mlp.router.bias": router["bias"],
        gate_up: _drawn(model, gate_up, 1.0 / math.sqrt(hidden), experts.count, hidden, 2 * inner),
        f"{gate_up}_bias": _drawn(model, f"{gate_up}_bias", _GATE_BIAS_STD, experts.count, 2 * inner),
        down: _drawn(model, down, DOWN_GAIN / math.sqrt(inner), experts.count, inner, hidden),
        f"{down}_bias": _drawn(model, f"{down}_bias", _BIAS_STD, experts.count, hidden),
    }


def _carry_codes(model: ModelShape, experts: ExpertShape, tensors: dict[str, Weights]) -> None:
    """Give every token its routing code, and let nothing else write where it lies (`kit.synthetic.routing`)."""
    places = code_places(model)
    tensors["model.embed_tokens.weight"][:, places] = codes(model, experts)
    for layer in range(model.layers):
        prefix = f"model.layers.{layer}"
        tensors[f"{prefix}.post_attention_layernorm.weight"][places] = 1.0
        tensors[f"{prefix}.self_attn.o_proj.weight"][places] = 0.0
        tensors[f"{prefix}.self_attn.o_proj.bias"][places] = 0.0
        tensors[f"{prefix}.mlp.experts.down_proj"][..., places] = 0.0
        tensors[f"{prefix}.mlp.experts.down_proj_bias"][:, places] = 0.0
