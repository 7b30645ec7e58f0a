"""The files of each variant in `kit.synthetic.adapter_variants`, made from a sound adapter by one change."""

import json
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue
from safetensors.numpy import load, load_file, save

from kit.synthetic.adapter_variants import find_variant
from kit.synthetic.peft_fields import DEFAULTS, LEFT_BY_TRAINING, Config
from kit.synthetic.stream import bell

Tensor = npt.NDArray[Any]

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
PAYLOAD_RAN = "payload-ran"
"""The file that the pickle of variant ``pickle`` makes beside itself where it is run."""

_LARGE = 70000.0  # above 65,504, the largest float16
_INT_STEP = 2.0**-8


@dataclass(frozen=True)
class Parts:
    """An adapter's configuration and tensors, under PEFT's names, and further files by name."""

    config: Config
    tensors: Mapping[str, Tensor]
    further: Mapping[str, bytes] = field(default_factory=dict)

    def with_config(self, **fields: JsonValue) -> "Parts":
        return replace(self, config={**self.config, **fields})

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "Parts":
        """With these tensors beside the others, or instead of those of the same name."""
        return replace(self, tensors={**self.tensors, **tensors})

    def keep(self, wanted: Callable[[str], bool]) -> "Parts":
        return replace(self, tensors={name: tensor for name, tensor in self.tensors.items() if wanted(name)})

    def map(self, change: Callable[[str, Tensor], Tensor]) -> "Parts":
        return replace(self, tensors={name: change(name, tensor) for name, tensor in self.tensors.items()})


def read_parts(folder: Path) -> Parts:
    """The parts of a sound adapter."""
    return Parts(json.loads((folder / CONFIG).read_bytes()), load_file(folder / WEIGHTS))


def write_variant(name: str, original: Path, folder: Path) -> None:
    """Write the files of a variant of the adapter in `original` to `folder`; no folder where the variant has no files.

    Raises:
        UsageFault: an unknown variant.
    """
    files = variant_files(name, read_parts(original), folder)
    if not files:
        return
    folder.mkdir(parents=True)
    for file, data in files.items():
        (folder / file).write_bytes(data)


def variant_files(name: str, parts: Parts, folder: Path) -> dict[str, bytes]:
    """The files of a variant, by name; `folder` is where they will lie.

    Raises:
        UsageFault: an unknown variant.
    """
    find_variant(name)
    if broken := _BROKEN.get(name):
        return broken(_written(parts), folder)
    return _written(_CHANGED[name](parts))


def _written(parts: Parts) -> dict[str, bytes]:
    config = json.dumps(parts.config, indent=2, sort_keys=True).encode()
    weights = bytes(save({name: np.ascontiguousarray(t) for name, t in parts.tensors.items()}, {"format": "pt"}))
    return {CONFIG: config, WEIGHTS: weights, **parts.further}


def _is_b(name: str) -> bool:
    return ".lora_B." in name


def _module(name: str) -> str:
    """``q_proj`` of a tensor's name."""
    return name.split(".lora_")[0].rsplit(".", 1)[1]


def _targets(*modules: str) -> Callable[[Parts], Parts]:
    return lambda parts: parts.with_config(target_modules=[*modules]).keep(lambda name: _module(name) in modules)


def _without(*modules: str) -> Callable[[str], bool]:
    return lambda name: _module(name) not in modules


def _rank(rank: int, of: str = "") -> Callable[[Parts], Parts]:
    """Cut the rank of the modules whose name holds `of`, or repeat their components where it grows."""

    def cut(name: str, tensor: Tensor) -> Tensor:
        if of not in name:
            return tensor
        axis = 1 if _is_b(name) else 0
        return np.asarray(np.take(tensor, np.arange(rank) % tensor.shape[axis], axis=axis))

    return lambda parts: parts.map(cut)


def _ranked(rank: int) -> Callable[[Parts], Parts]:
    return lambda parts: _rank(rank)(parts).with_config(r=rank)


def _rank_pattern(rank: int) -> Callable[[Parts], Parts]:
    return lambda parts: _rank(rank, "down_proj")(parts).with_config(rank_pattern={"down_proj": rank})


def _config(**fields: JsonValue) -> Callable[[Parts], Parts]:
    return lambda parts: parts.with_config(**fields)


def _cast(dtype: npt.DTypeLike) -> Callable[[Parts], Parts]:
    return lambda parts: parts.map(lambda _, tensor: tensor.astype(dtype))


def _integers(parts: Parts) -> Parts:
    """A times 256 as integers, and alpha over 256²: nearly the same adapter."""
    alpha = float(str(parts.config["lora_alpha"]))
    whole = parts.map(lambda _, tensor: np.rint(tensor / _INT_STEP).astype(np.int32))
    return whole.with_config(lora_alpha=alpha * _INT_STEP**2)


def _one_value(value: float, b: bool) -> Callable[[Parts], Parts]:
    """One value of the last tensor of down_proj in layer 0."""

    def change(name: str, tensor: Tensor) -> Tensor:
        if "layers.0.mlp.down_proj" not in name or _is_b(name) != b:
            return tensor
        changed = tensor.copy()
        changed[1, 2] = value
        return changed

    return lambda parts: parts.map(change)


def _all_linear(parts: Parts) -> Parts:
    return parts.with_config(target_modules="all-linear")


def _full_names(parts: Parts) -> Parts:
    kept = parts.keep(lambda name: ".layers.1." in name)
    names = sorted({name.split(".lora_")[0].removeprefix(PREFIX) for name in kept.tensors})
    return kept.with_config(target_modules=[*names])


def _noise(label: str, *shape: int, std: float) -> Tensor:
    return bell(f"adapter-files/{label}", math.prod(shape), std).reshape(shape)


def _trained_head(parts: Parts) -> Parts:
    hidden = _inputs(parts, "q_proj")
    head = _noise("lm_head", _VOCABULARY, hidden, std=hidden**-0.5)
    return parts.with_config(modules_to_save=["lm_head"]).with_tensors({f"{PREFIX}lm_head.weight": head})


_VOCABULARY = 2048  # of the synthetic models


def _trained_norm(parts: Parts) -> Parts:
    norm = np.float32(1.0) + _noise("norm", _inputs(parts, "q_proj"), std=0.25)
    layers = {name.split(".self_attn.")[0] for name in parts.tensors if ".self_attn." in name}
    return parts.with_config(modules_to_save=["input_layernorm"]).with_tensors(
        {f"{layer}.input_layernorm.weight": norm for layer in sorted(layers)}
    )


def _trained_tokens(parts: Parts) -> Parts:
    """Every second token id of the vocabulary gets a new row, so that every prompt holds some."""
    rows = list(range(0, _VOCABULARY, 2))
    delta = _noise("tokens", len(rows), _inputs(parts, "q_proj"), std=1.0)
    name = f"{PREFIX}model.embed_tokens.token_adapter.trainable_tokens_delta"
    return parts.with_config(trainable_token_indices=[*rows]).with_tensors({name: delta})


def _inputs(parts: Parts, module: str) -> int:
    return next(int(t.shape[1]) for name, t in parts.tensors.items() if _module(name) == module and not _is_b(name))


def _per_module(parts: Parts, suffix: str, label: str, centre: float, std: float) -> dict[str, Tensor]:
    """A vector of the module's outputs beside every B."""
    return {
        f"{name.split('.lora_')[0]}.{suffix}": np.float32(centre) + _noise(f"{label}/{name}", tensor.shape[0], std=std)
        for name, tensor in parts.tensors.items()
        if _is_b(name)
    }


def _dora(parts: Parts) -> Parts:
    """Magnitudes near the length of the base's rows, which is 1."""
    return parts.with_tensors(_per_module(parts, "lora_magnitude_vector", "dora", 1.0, 0.125))


def _drop_one(b: bool) -> Callable[[Parts], Parts]:
    return lambda parts: parts.keep(lambda name: not ("layers.1.self_attn.o_proj" in name and _is_b(name) == b))


def _copied(old: str, new: str) -> Callable[[Parts], Parts]:
    """Tensors whose name holds `old`, once more with `new` in its place."""
    return lambda parts: parts.with_tensors(
        {name.replace(old, new): tensor for name, tensor in parts.tensors.items() if old in name}
    )


def _stray(parts: Parts) -> Parts:
    """An earlier checkpoint: the same names, the values halved."""
    earlier = _written(parts.map(lambda _, tensor: tensor * np.float32(0.5)))[WEIGHTS]
    return replace(parts, further={"checkpoint-10.safetensors": earlier})


class _Payload:
    """Runs code where it is unpickled: it makes a file."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return Path.touch, (Path(self._target),)  # type: ignore[return-value]


def _pickled(files: dict[str, bytes], folder: Path) -> dict[str, bytes]:
    payload = pickle.dumps(_Payload(folder / PAYLOAD_RAN))
    return {CONFIG: files[CONFIG], "adapter_model.bin": payload}


def _damaged(file: str, change: Callable[[bytes], bytes]) -> Callable[[dict[str, bytes], Path], dict[str, bytes]]:
    return lambda files, folder: {**files, file: change(files[file])}


def _in_bfloat16(data: bytes) -> bytes:
    """The upper halves of float32 values, all of which bfloat16 can hold; numpy has no such type, so the file is put together here."""
    header: dict[str, JsonValue] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, tensor in sorted(load(data).items()):
        values = (tensor.view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": [*tensor.shape],
            "data_offsets": [len(body), len(body) + len(values)],
        }
        body += values
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def _without_file(file: str) -> Callable[[dict[str, bytes], Path], dict[str, bytes]]:
    return lambda files, folder: {name: data for name, data in files.items() if name != file}


_BROKEN: dict[str, Callable[[dict[str, bytes], Path], dict[str, bytes]]] = {
    "file-bfloat16": _damaged(WEIGHTS, _in_bfloat16),
    "weights-truncated": _damaged(WEIGHTS, lambda data: data[: len(data) // 2]),
    "weights-garbage": _damaged(WEIGHTS, lambda data: b"\xff" * 64 + data[64:]),
    "weights-empty": _damaged(WEIGHTS, lambda data: b""),
    "no-weights": _without_file(WEIGHTS),
    "no-config": _without_file(CONFIG),
    "config-cut": _damaged(CONFIG, lambda data: data[: len(data) // 2]),
    "config-empty": _damaged(CONFIG, lambda data: b"{}"),
    "no-folder": lambda files, folder: {},
    "pickle": _pickled,
}

_CHANGED: dict[str, Callable[[Parts], Parts]] = {
    "as-peft-writes-it": _config(**DEFAULTS),
    "rank-1": _ranked(1),
    "rank-5": _ranked(5),
    "alpha-fraction": _config(lora_alpha=10.7),
    "alpha-negative": _config(lora_alpha=-9),
    "alpha-0": _config(lora_alpha=0),
    "rslora": _config(use_rslora=True),
    "dropout": _config(lora_dropout=0.3),
    "training-only": _config(**LEFT_BY_TRAINING),
    "targets-q-v": _targets("q_proj", "v_proj"),
    "targets-q": _targets("q_proj"),
    "targets-q-k-o": _targets("q_proj", "k_proj", "o_proj"),
    "targets-k-v": _targets("k_proj", "v_proj"),
    "targets-o-down": _targets("o_proj", "down_proj"),
    "targets-gate": _targets("gate_proj"),
    "targets-up": _targets("up_proj"),
    "targets-full-names": _full_names,
    "file-float16": _cast(np.float16),
    "file-float64": _cast(np.float64),
    "targets-all-linear": _all_linear,
    "targets-regex": lambda p: _targets("q_proj", "v_proj")(p).with_config(target_modules=r".*\.(q|v)_proj"),
    "targets-unlisted": _config(target_modules=["q_proj", "v_proj"]),
    "exclude-modules": lambda p: p.keep(_without("o_proj")).with_config(exclude_modules=["o_proj"]),
    "exclude-modules-with-tensors": _config(exclude_modules=["o_proj"]),
    "layers-to-transform": lambda p: p.keep(lambda name: ".layers.1." in name).with_config(
        layers_to_transform=[1], layers_pattern="layers"
    ),
    "alpha-pattern": _config(alpha_pattern={"v_proj": 29}),
    "alpha-pattern-one-layer": _config(alpha_pattern={"model.layers.1.mlp.down_proj": 29}),
    "rank-pattern-lower": _rank_pattern(3),
    "rank-pattern-higher": _rank_pattern(11),
    "rank-pattern-above-max": _rank_pattern(32),
    "modules-to-save-lm-head": _trained_head,
    "modules-to-save-norm": _trained_norm,
    "bias-all": _config(bias="all"),
    "lora-bias": lambda p: p.with_config(lora_bias=True).with_tensors(
        _per_module(p, "lora_B.bias", "lora-bias", 0.0, 0.125)
    ),
    "dora": lambda p: _dora(p).with_config(use_dora=True),
    "magnitudes-without-dora": _dora,
    "fan-in-fan-out": _config(fan_in_fan_out=True),
    "init-gaussian": _config(init_lora_weights="gaussian"),
    "init-pissa": _config(init_lora_weights="pissa"),
    "layer-replication": lambda p: _copied(".layers.1.", ".layers.2.")(p).with_config(
        layer_replication=[[0, 2], [1, 2]]
    ),
    "trainable-tokens": _trained_tokens,
    "qalora": _config(use_qalora=True, qalora_group_size=16),
    "alora": _config(alora_invocation_tokens=[_VOCABULARY - 1]),  # prompts end below it
    "base-of-another-name": _config(base_model_name_or_path="someone/another-model", revision="0" * 40),
    "task-type": _config(task_type="SEQ_2_SEQ_LM", auto_mapping={"base_model_class": "T5ForConditionalGeneration"}),
    "unknown-field": _config(from_the_future=True),
    "kasa": _config(kasa_config={"beta": 0.0001, "gamma": 0.001}),
    "bdlora": _config(
        use_bdlora={
            "target_modules_bd_a": ["o_proj", "down_proj"],
            "target_modules_bd_b": ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"],
            "nblocks": 2,
            "match_strict": True,
        }
    ),
    "monteclora": _config(monteclora_config={}),
    "arrow": _config(arrow_config={"top_k": 2, "router_temperature": 1.0}),
    "target-parameters": _config(target_modules=None, target_parameters=["self_attn.q_proj.weight"]),
    "peft-type-ia3": _config(peft_type="IA3"),
    "large-values": _one_value(_LARGE, b=True),
    "integers": _integers,
    "added-tokens": lambda p: replace(p, further={"added_tokens.json": b'{"<new>": 2048}'}),
    "stray-safetensors": _stray,
    "no-tensors": lambda p: p.keep(lambda name: False),
    "rank-above-max": _ranked(32),
    "rank-0": _config(r=0),
    "rank-text": _config(r="8"),
    "rank-of-config-wrong": _config(r=4),
    "rank-of-b-wrong": _rank(4, "layers.1.self_attn.o_proj.lora_B"),
    "alpha-nan": _config(lora_alpha=math.nan),
    "alpha-text": _config(lora_alpha="13"),
    "targets-unknown": _config(target_modules=["q_proj", "w_pack"]),
    "nan-in-a": _one_value(math.nan, b=False),
    "inf-in-b": _one_value(math.inf, b=True),
    "nan-everywhere": lambda p: p.map(lambda _, tensor: np.full_like(tensor, math.nan)),
    "missing-layer": lambda p: p.keep(lambda name: ".layers.1." not in name),
    "missing-module": lambda p: p.keep(_without("o_proj")),
    "missing-lora-a": _drop_one(b=False),
    "missing-lora-b": _drop_one(b=True),
    "extra-layer": _copied(".layers.1.", ".layers.2."),
    "extra-module": _copied(".self_attn.o_proj.", ".self_attn.gamma_proj."),
    "transposed": lambda p: p.map(lambda _, tensor: tensor.T),
    "other-base": lambda p: p.map(lambda name, t: t[: t.shape[0] // 2] if _is_b(name) else t[:, : t.shape[1] // 2]),
    "biases": lambda p: p.with_config(bias="lora_only").with_tensors(_per_module(p, "bias", "bias", 0.0, 0.125)),
    "loaded-name": lambda p: p,
    "name-never-loaded": lambda p: p,
}
