"""The oracle of a served model: reads the very files that are served, answers for the base model and every adapter."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict
from safetensors.numpy import load_file

from kit.oracles import canary, qwen3
from kit.oracles.twice import Array


class _Rope(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rope_theta: float
    rope_type: str


class _ModelConfig(BaseModel):
    model_type: str
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_parameters: _Rope


class _AdapterConfig(BaseModel):
    r: int
    lora_alpha: float
    use_rslora: bool


def read_model(folder: Path) -> tuple[qwen3.Qwen3Settings, qwen3.Weights]:
    """Settings and float64 weights of a Qwen3 in Hugging Face layout."""
    config = _ModelConfig.model_validate_json((folder / "config.json").read_bytes())
    if config.model_type != "qwen3" or config.rope_parameters.rope_type != "default":
        raise ValueError(f"{folder}: the oracle covers qwen3 with plain rotary positions only")
    settings = qwen3.Qwen3Settings(
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_parameters.rope_theta,
    )
    return settings, _tensors(folder / "model.safetensors")


def adapter_scaling(folder: Path) -> float:
    """alpha / rank of an adapter in PEFT layout."""
    config = _AdapterConfig.model_validate_json((folder / "adapter_config.json").read_bytes())
    if config.use_rslora:
        raise ValueError(f"{folder}: only scaling alpha / rank is covered")
    return config.lora_alpha / config.r


def read_adapter(folder: Path) -> qwen3.Adapter:
    """The modules of a LoRA adapter in PEFT layout, with scaling alpha / rank."""
    scaling = adapter_scaling(folder)
    tensors = _tensors(folder / "adapter_model.safetensors")
    modules = sorted({name.rsplit(".", 2)[0] for name in tensors})
    return {
        module.removeprefix("base_model.model."): qwen3.LowRank(
            a=tensors[f"{module}.lora_A.weight"],
            b=tensors[f"{module}.lora_B.weight"],
            scaling=scaling,
        )
        for module in modules
    }


def _tensors(path: Path) -> dict[str, Array]:
    return {name: tensor.astype(np.float64) for name, tensor in load_file(path).items()}


class LogprobOracle:
    """Prompt logprobs in float64 of one model and its adapters; computed twice each, kept for the next case.

    Args:
        model: folder of the model. adapters: folder of each adapter, by name.
    Raises:
        OracleDisagreement: the oracle misses a known answer on this machine.
    """

    def __init__(self, model: Path, adapters: dict[str, Path]) -> None:
        canary.check_qwen3()
        self._settings, self._weights = read_model(model)
        self._adapters = {name: read_adapter(folder) for name, folder in adapters.items()}
        self._known: dict[str, Array] = {}

    def logprobs(self, prompt: Sequence[int], identity: str | None) -> Array:
        """[n] token ids → [n − 1] logprobs of tokens 1 … n − 1 in nat; `identity` None is the base model.

        Raises:
            OracleDisagreement: two computations differ.
        """
        key = json.dumps([identity, list(prompt)])
        if key not in self._known:
            adapter = qwen3.NO_ADAPTER if identity is None else self._adapters[identity]
            self._known[key] = qwen3.prompt_logprobs(self._settings, self._weights, adapter, prompt)
        return self._known[key]
