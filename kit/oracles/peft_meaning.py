"""What the files of a LoRA adapter mean, field by field: the low-rank changes and the weights that it puts in the base's place.

Written from the documentation of peft's `LoraConfig` (0.21) and the papers, without its code; held against peft in float64 by
tests/unit/oracles/test_peft_meaning.py. Formulas:
- scaling alpha / r, or alpha / √r with use_rslora: Hu et al. (arXiv 2106.09685), 4.1; Kalajdzievski (arXiv 2312.03732);
- use_dora: W' = m · (W + s B A) / ‖W + s B A‖, norms of the rows: Liu et al. (arXiv 2402.09353), equation 5;
- init_lora_weights "pissa": the base is W without its r largest singular components: Meng et al. (arXiv 2404.02948), section 3;
- alora_invocation_tokens: nothing before the invocation: Greenewald et al. (arXiv 2504.12397).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from kit.oracles.layers import Adapter, LowRank
from kit.oracles.twice import Array

PREFIX = "base_model.model."
_OUTPUT = "lm_head"
_LAYER = re.compile(r"\.(?P<pattern>[^.]+)\.(?P<index>\d+)\.")


class _Meant(BaseModel):
    """The fields that have a meaning for a served decoder; all others are training's, or mean nothing for linear layers."""

    model_config = ConfigDict(extra="ignore")
    r: int
    lora_alpha: float
    target_modules: tuple[str, ...] | str
    exclude_modules: tuple[str, ...] | str | None = None
    layers_to_transform: tuple[int, ...] | int | None = None
    layers_pattern: tuple[str, ...] | str | None = None
    rank_pattern: dict[str, int] = {}
    alpha_pattern: dict[str, float] = {}
    use_rslora: bool = False
    use_dora: bool = False
    lora_bias: bool = False
    init_lora_weights: bool | str = True
    modules_to_save: tuple[str, ...] | None = None
    trainable_token_indices: tuple[int, ...] | None = None
    alora_invocation_tokens: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Meaning:
    """An adapter on one base.

    Attributes:
        adapter: the low-rank changes.
        weights: tensors that stand in the place of the base's, and biases that it lacks, by name.
    """

    adapter: Adapter
    weights: Mapping[str, Array]


def read_meaning(folder: Path, base: Mapping[str, Array]) -> Meaning:
    """What the adapter in `folder` means on a base with these float64 weights, for prompts without aLoRA's invocation.

    Raises:
        KeyError: a tensor that the configuration asks for is missing.
    """
    meant = _Meant.model_validate(json.loads((folder / "adapter_config.json").read_bytes()))
    tensors = read_tensors(folder / "adapter_model.safetensors")
    return _meaning(meant, {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}, base)


def read_tensors(path: Path) -> dict[str, Array]:
    """Tensors of a safetensors file in float64, by name. numpy has no bfloat16, so the format (little-endian) is read here.

    Raises:
        KeyError: a dtype other than F64, F32, F16, BF16 and I32.
    """
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    return {
        name: _values(told["dtype"], data[start:][slice(*told["data_offsets"])]).reshape(told["shape"])
        for name, told in header.items()
        if name != "__metadata__"
    }


def _values(dtype: str, data: bytes) -> Array:
    if dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    return np.frombuffer(data, {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I32": "<i4"}[dtype]).astype(np.float64)


def _meaning(meant: _Meant, tensors: Mapping[str, Array], base: Mapping[str, Array]) -> Meaning:
    adapter: dict[str, LowRank] = {}
    weights = _saved(meant, tensors)
    for module in sorted(_linear(base)):
        if not _targeted(meant, module):
            continue
        rank, scaling = _rank_and_scaling(meant, module)
        low = LowRank(tensors[f"{module}.lora_A.weight"], tensors[f"{module}.lora_B.weight"], scaling)
        own = base[f"{module}.weight"]
        if meant.init_lora_weights == "pissa":
            weights[f"{module}.weight"] = own - _largest(own, rank)
        if meant.lora_bias:
            weights[f"{module}.bias"] = scaling * tensors[f"{module}.lora_B.bias"]
        if meant.use_dora:
            changed = own + scaling * (low.b @ low.a)
            length = np.linalg.norm(changed, axis=1, keepdims=True)
            weights[f"{module}.weight"] = tensors[f"{module}.lora_magnitude_vector"][:, None] * changed / length
        else:
            adapter[module] = low
    if meant.trainable_token_indices is not None:
        rows = base["model.embed_tokens.weight"].copy()
        rows[list(meant.trainable_token_indices)] = tensors["model.embed_tokens.token_adapter.trainable_tokens_delta"]
        weights["model.embed_tokens.weight"] = rows
    return Meaning({} if meant.alora_invocation_tokens is not None else adapter, weights)


def _linear(base: Mapping[str, Array]) -> set[str]:
    """Names of the linear modules of the layers: what has a matrix, but neither embedding nor output."""
    named = {name.removesuffix(".weight") for name, tensor in base.items() if tensor.ndim == 2}
    return {module for module in named if "embed_tokens" not in module and module != _OUTPUT}


def _saved(meant: _Meant, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Tensors of modules_to_save: the module's own, under its own name."""
    modules = meant.modules_to_save or ()
    return {name: tensor for name, tensor in tensors.items() if _named(name.rpartition(".")[0], modules)}


def _named(module: str, names: Sequence[str] | str) -> bool:
    """Whether one of the names is the module's, or ends it after a dot; a text is a regular expression for the whole name."""
    if isinstance(names, str):
        return re.fullmatch(names, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in names)


def _targeted(meant: _Meant, module: str) -> bool:
    if meant.exclude_modules and _named(module, meant.exclude_modules):
        return False
    if meant.target_modules != "all-linear" and not _named(module, meant.target_modules):
        return False
    if meant.layers_to_transform is None:
        return True
    chosen = meant.layers_to_transform
    layers = (chosen,) if isinstance(chosen, int) else chosen
    patterns = meant.layers_pattern or ()
    place = _LAYER.search(module)
    if place is None or int(place["index"]) not in layers:
        return False
    return not patterns or place["pattern"] in ((patterns,) if isinstance(patterns, str) else patterns)


def _rank_and_scaling(meant: _Meant, module: str) -> tuple[int, float]:
    rank = int(_of_pattern(meant.rank_pattern, module, meant.r))
    alpha = _of_pattern(meant.alpha_pattern, module, meant.lora_alpha)
    return rank, alpha / (math.sqrt(rank) if meant.use_rslora else rank)


def _of_pattern(pattern: Mapping[str, float], module: str, default: float) -> float:
    """The value of the first key that is, as a regular expression, the module's name or the end of it after a dot."""
    return next((value for key, value in pattern.items() if re.match(rf"(.*\.)?({key})$", module)), default)


def _largest(matrix: Array, rank: int) -> Array:
    """The sum of the `rank` largest singular components."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray((left[:, :rank] * values[:rank]) @ right[:rank])
