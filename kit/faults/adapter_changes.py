"""What faults change in the files of an adapter: numbers of its configuration, and its tensors."""

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kit.synthetic.catalogue import MLP

Tensors: TypeAlias = dict[str, npt.NDArray[np.float32]]
Config: TypeAlias = dict[str, Any]

_NOISE_SEED: Final = 20240607


def _scale(config: Config, factor: float) -> None:
    config["lora_alpha"] *= factor


def _mistake_root(config: Config, _: float) -> None:
    """Through alpha, since an engine may not read use_rslora: α/√r is α·√r over r, and the other way round."""
    root = math.sqrt(config["r"])
    config["lora_alpha"] *= 1.0 / root if config["use_rslora"] else root


def _ignore_alpha(config: Config, _: float) -> None:
    config["lora_alpha"] = config["r"]


def _forget_rank(config: Config, _: float) -> None:
    config["lora_alpha"] *= config["r"]


def _is_b(name: str) -> bool:
    return ".lora_B." in name or ".lora_embedding_B" in name


def _change_b(change: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]], *marks: str) -> "_OfTensors":
    """B, [outputs, rank], of every module whose name holds one of `marks`."""

    def alter(tensors: Tensors, _: float) -> None:
        for name, tensor in tensors.items():
            if _is_b(name) and any(mark in name for mark in marks):
                tensors[name] = change(tensor)

    return alter


def _silence(*marks: str) -> "_OfTensors":
    return _change_b(np.zeros_like, *marks)


def _without_columns(chosen: Callable[[int], slice]) -> "_OfTensors":
    """B = 0 in some of its ranks, in every module."""

    def change(b: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        kept = b.copy()
        kept[..., chosen(b.shape[-1])] = 0.0
        return kept

    return _change_b(change, "")


def _layers(tensors: Tensors) -> list[int]:
    return sorted({int(name.split(".layers.", 1)[1].split(".", 1)[0]) for name in tensors if ".layers." in name})


def _silence_last_layer(tensors: Tensors, strength: float) -> None:
    if layers := _layers(tensors):
        _silence(f".layers.{layers[-1]}.")(tensors, strength)


def _exchange(one: str, other: str) -> "_OfTensors":
    """The tensors of two modules or layers, where their shapes are the same."""

    def alter(tensors: Tensors, _: float) -> None:
        for name in [name for name in tensors if one in name]:
            twin = name.replace(one, other)
            if twin in tensors and tensors[name].shape == tensors[twin].shape:
                tensors[name], tensors[twin] = tensors[twin], tensors[name]

    return alter


def _exchange_layers(tensors: Tensors, strength: float) -> None:
    if layers := _layers(tensors):
        _exchange(f".layers.{layers[0]}.", f".layers.{layers[-1]}.")(tensors, strength)


def _repeat_first_layer(tensors: Tensors, _: float) -> None:
    layers = _layers(tensors)
    for name in [name for name in tensors if layers and f".layers.{layers[-1]}." in name]:
        tensors[name] = tensors[name.replace(f".layers.{layers[-1]}.", f".layers.{layers[0]}.")]


def _transpose_query(tensors: Tensors, _: float) -> None:
    """(B A)ᵀ = Aᵀ Bᵀ where B A is square; else B is read in the other memory order, the same mistake."""
    for a_name in [name for name in tensors if ".q_proj.lora_A" in name]:
        b_name = a_name.replace(".lora_A", ".lora_B")
        a, b = tensors[a_name], tensors[b_name]
        if a.shape == b.shape[::-1]:
            tensors[a_name], tensors[b_name] = b.T, a.T
        else:
            tensors[b_name] = b.reshape(b.shape[::-1]).T


def _silence_half(b: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    kept = b.copy()
    kept[len(b) // 2 :] = 0.0
    return kept


def _exchange_halves(b: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.roll(b, len(b) // 2, axis=0)


def _flip_largest(b: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    flipped = b.copy()
    flipped.flat[np.argmax(np.abs(b))] *= -1.0
    return flipped


def _round(tensors: Tensors, _: float) -> None:
    """A and B to four significant bits, as in FP8 E4M3 with a range that fits."""
    for name, tensor in tensors.items():
        fraction, exponent = np.frexp(tensor)
        tensors[name] = np.ldexp(np.round(16.0 * fraction) / 16.0, exponent).astype(np.float32)


def _scale_mlp(tensors: Tensors, factor: float) -> None:
    for name, tensor in tensors.items():
        if _is_b(name) and any(f".{module}." in name for module in MLP):
            tensors[name] = np.float32(factor) * tensor


def _add_noise(tensors: Tensors, size: float) -> None:
    """B · (1 + size · N(0, 1)), the same in every run."""
    draws = np.random.default_rng(_NOISE_SEED)
    for name in sorted(tensors):
        if _is_b(name):
            noise = draws.standard_normal(tensors[name].shape, np.float32)
            tensors[name] = tensors[name] * (1.0 + np.float32(size) * noise)


_OfTensors: TypeAlias = Callable[[Tensors, float], None]

OF_CONFIG: Final[dict[str, Callable[[Config, float], None]]] = {
    "adapter-scaling": _scale,
    "adapter-scaling-root": _mistake_root,
    "adapter-alpha-ignored": _ignore_alpha,
    "adapter-rank-forgotten": _forget_rank,
}
"""By fault, a change of ``adapter_config.json``; the number is the fault's strength."""

OF_TENSORS: Final[dict[str, _OfTensors]] = {
    "adapter-missing": _silence(""),
    "adapter-layer-dropped": _silence_last_layer,
    "adapter-layers-exchanged": _exchange_layers,
    "adapter-layer-repeated": _repeat_first_layer,
    "adapter-value-dropped": _silence(".layers.0.self_attn.v_proj."),
    "adapter-output-dropped": _silence(".o_proj."),
    "adapter-down-dropped": _silence(".down_proj."),
    "adapter-head-dropped": _silence("lm_head"),
    "adapter-embedding-dropped": _silence("embed_tokens"),
    "adapter-expert-dropped": _silence(".experts.0."),
    "adapter-query-key-swapped": _exchange(".q_proj.", ".k_proj."),
    "adapter-gate-up-swapped": _exchange(".gate_proj.", ".up_proj."),
    "adapter-query-transposed": _transpose_query,
    "adapter-query-half-lost": _change_b(_silence_half, ".q_proj."),
    "adapter-value-halves-exchanged": _change_b(_exchange_halves, ".v_proj."),
    "adapter-output-negated": _change_b(np.negative, ".layers.0.self_attn.o_proj."),
    "adapter-sign-flipped": _change_b(_flip_largest, ".layers.0.self_attn.q_proj."),
    "adapter-rank-halved": _without_columns(lambda rank: slice(rank // 2, None)),
    "adapter-rank-interleaved": _without_columns(lambda rank: slice(1, None, 2)),
    "adapter-rounded": _round,
    "adapter-mlp-scaling": _scale_mlp,
    "adapter-noise": _add_noise,
}
"""By fault, a change of ``adapter_model.safetensors``; the number is the fault's strength."""
