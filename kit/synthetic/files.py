"""Synthetic models and adapters as files: Hugging Face and PEFT layout, byte for byte the same everywhere."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pydantic import JsonValue
from safetensors.numpy import save

from kit.errors import EnvironmentFault
from kit.plan import AssetFile
from kit.synthetic.adapters import adapter_weights
from kit.synthetic.catalogue import AdapterShape, ModelShape, adapter_folder, find_model, model_folder
from kit.synthetic.stream import Weights
from kit.synthetic.weights import model_weights


def materialise(models: Iterable[str], folder: Path) -> tuple[AssetFile, ...]:
    """Write the named models with their adapters below `folder`, where they are not there yet.

    A model's folder gets its name only when it is complete. What is there and differs is replaced.

    Returns:
        Every file, with its path relative to `folder`, sorted by path.
    Raises:
        UsageFault: an unknown model.
        EnvironmentFault: the folder cannot be written.
    """
    files: dict[str, str] = {}
    for name in sorted(set(models)):
        contents = model_files(find_model(name))
        try:
            if not _holds(folder, contents):
                _write(folder, model_folder(name), contents)
        except OSError as error:
            problem = f"cannot write synthetic assets to {folder}: {error.strerror or error}"
            raise EnvironmentFault(problem, "free some space, or choose another cache folder with KIT_CACHE") from error
        files |= {path: hashlib.sha256(data).hexdigest() for path, data in contents.items()}
    return tuple(AssetFile(path=path, sha256=files[path]) for path in sorted(files))


def model_files(model: ModelShape) -> dict[str, bytes]:
    """The contents of a model's files and of its adapters', by path relative to the assets folder."""
    base = model_folder(model.name)
    contents = {
        f"{base}/config.json": _json(_model_config(model)),
        f"{base}/model.safetensors": _tensors(model_weights(model)),
    }
    for adapter in model.all_adapters:
        place = adapter_folder(model.name, adapter.name)
        contents |= {f"{place}/{file}": data for file, data in adapter_files(model, adapter).items()}
    return contents


def adapter_files(model: ModelShape, adapter: AdapterShape) -> dict[str, bytes]:
    """The contents of an adapter's files, by name."""
    return {
        "adapter_config.json": _json(_adapter_config(model, adapter)),
        "adapter_model.safetensors": _tensors(adapter_weights(model, adapter)),
    }


def _model_config(model: ModelShape) -> dict[str, JsonValue]:
    """config.json, as transformers and SGLang read it."""
    config: dict[str, JsonValue] = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "dtype": "float32",
        "head_dim": model.head_dim,
        "hidden_act": "silu",
        "hidden_size": model.hidden,
        "intermediate_size": model.intermediate,
        "max_position_embeddings": model.positions,
        "model_type": model.family,
        "num_attention_heads": model.heads,
        "num_hidden_layers": model.layers,
        "num_key_value_heads": model.kv_heads,
        "rms_norm_eps": model.norm_epsilon,
        "rope_parameters": dict(model.rope),
        "tie_word_embeddings": False,
        "vocab_size": model.vocabulary,
    }
    match model.family:
        case "qwen3":
            return config | {"architectures": ["Qwen3ForCausalLM"], "use_sliding_window": False}
        case "llama":
            return config | {"architectures": ["LlamaForCausalLM"], "mlp_bias": False}
        case "gpt_oss":
            return config | {"architectures": ["GptOssForCausalLM"], "attention_bias": True} | _expert_config(model)


def _expert_config(model: ModelShape) -> dict[str, JsonValue]:
    assert model.experts is not None
    attention = ("sliding_attention", "full_attention")
    return {
        "layer_types": [attention[layer % 2] for layer in range(model.layers)],
        "num_experts_per_tok": model.experts.per_token,
        "num_local_experts": model.experts.count,
        "sliding_window": model.window,
        "swiglu_limit": model.experts.limit,
    }


def _adapter_config(model: ModelShape, adapter: AdapterShape) -> dict[str, JsonValue]:
    return {
        "base_model_name_or_path": model.name,
        "bias": "none",
        "inference_mode": True,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": adapter.rank,
        "target_modules": list(adapter.modules),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": adapter.stabilised,
    }


def _json(value: dict[str, JsonValue]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def _tensors(tensors: dict[str, Weights]) -> bytes:
    return bytes(save(tensors, metadata={"format": "pt"}))


def _holds(folder: Path, contents: dict[str, bytes]) -> bool:
    return all((folder / path).is_file() and (folder / path).read_bytes() == data for path, data in contents.items())


def _write(folder: Path, name: str, contents: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder, ignore_cleanup_errors=True) as made:
        for path, data in contents.items():
            target = Path(made) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            with target.open("rb") as written:
                os.fsync(written.fileno())
        final = folder / name
        if final.exists():
            final.replace(Path(made) / "replaced")
        try:
            (Path(made) / name).replace(final)
        except OSError:
            if not _holds(folder, contents):  # else another process was faster
                raise
        with contextlib.suppress(OSError):
            shutil.rmtree(Path(made) / "replaced")
