"""The oracle of a served model: reads the very files that are served, answers for the base model and every adapter."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict
from safetensors.numpy import load_file

from kit.oracles import canary
from kit.oracles.decoder import DecoderSettings, next_logprobs, next_logprobs_once, of_tokens
from kit.oracles.experts import ExpertSettings
from kit.oracles.layers import NO_ADAPTER, Adapter, LowRank, Weights
from kit.oracles.peft_meaning import Meaning
from kit.oracles.rope import Rope
from kit.oracles.twice import Array

_KEPT_PASSES = 24
"""Forward passes that are kept whole: 8 MB each at 512 tokens of 2048 ids."""


class _Rope(BaseModel):
    """Every field of `kit.oracles.rope.Rope`; one that the oracle does not know is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")
    rope_theta: float
    rope_type: Literal["default", "llama3", "yarn"]
    factor: float = 1.0
    original_max_position_embeddings: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


class _ModelConfig(BaseModel):
    model_type: Literal["qwen3", "llama", "gpt_oss"]
    hidden_act: Literal["silu"]
    tie_word_embeddings: Literal[False]
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_parameters: _Rope
    layer_types: tuple[Literal["sliding_attention", "full_attention"], ...] | None = None
    sliding_window: int | None = None
    num_experts_per_tok: int | None = None
    swiglu_limit: float | None = None


class _AdapterConfig(BaseModel):
    r: int
    lora_alpha: float
    use_rslora: bool


def read_model(folder: Path) -> tuple[DecoderSettings, Weights]:
    """Settings and float64 weights of a model in Hugging Face layout.

    Raises:
        ValidationError: a configuration that the oracle does not cover.
    """
    config = _ModelConfig.model_validate_json((folder / "config.json").read_bytes())
    kinds = config.layer_types or ("full_attention",) * config.num_hidden_layers
    experts = None
    if config.model_type == "gpt_oss":
        if config.num_experts_per_tok is None or config.swiglu_limit is None:
            raise ValueError(f"{folder}: gpt_oss needs num_experts_per_tok and swiglu_limit")
        experts = ExpertSettings(config.num_experts_per_tok, config.swiglu_limit)
    settings = DecoderSettings(
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        rope=Rope(**config.rope_parameters.model_dump()),
        windows=tuple(config.sliding_window if kind == "sliding_attention" else None for kind in kinds),
        experts=experts,
    )
    return settings, _tensors(folder / "model.safetensors")


def adapter_scaling(folder: Path) -> float:
    """alpha / rank of an adapter in PEFT layout; alpha / √rank with rsLoRA (Kalajdzievski, arXiv 2312.03732)."""
    config = _AdapterConfig.model_validate_json((folder / "adapter_config.json").read_bytes())
    return config.lora_alpha / (math.sqrt(config.r) if config.use_rslora else config.r)


def read_adapter(folder: Path) -> Adapter:
    """The modules of a LoRA adapter in PEFT layout; experts by number, ``…mlp.experts.3.gate_proj``.

    A tensor of three dimensions holds all experts, or one for all where its first dimension is 1.

    Raises:
        ValueError: a tensor that is no part of LoRA.
    """
    scaling = adapter_scaling(folder)
    parts: dict[str, dict[str, Array]] = {}
    for name, tensor in _tensors(folder / "adapter_model.safetensors").items():
        found = _PART.fullmatch(name)
        if found is None:
            raise ValueError(f"{folder}: {name} is no part of LoRA")
        parts.setdefault(found["module"], {})[found["part"]] = tensor
    adapter: dict[str, LowRank] = {}
    for module, part in parts.items():
        adapter |= _low_ranks(module, part["A"], part["B"], scaling)
    return adapter


_PART = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?:embedding_)?(?P<part>[AB])(?:\.weight)?")


def _low_ranks(module: str, a: Array, b: Array, scaling: float) -> dict[str, LowRank]:
    experts, _, last = module.rpartition(".")
    if a.ndim == b.ndim == 3:
        count = max(len(a), len(b))
        a, b = (np.broadcast_to(part, (count, *part.shape[1:])) for part in (a, b))
        each = (_low_ranks(f"{experts}.{place}.{last}", a[place], b[place], scaling) for place in range(count))
        return {name: low for expert in each for name, low in expert.items()}
    if last == "gate_up_proj":  # one A, and in B the rows of gate before those of up
        gate, up = np.split(b, 2)
        return {f"{experts}.gate_proj": LowRank(a, gate, scaling), f"{experts}.up_proj": LowRank(a, up, scaling)}
    return {module: LowRank(a, b, scaling)}


def _tensors(path: Path) -> dict[str, Array]:
    return {name: tensor.astype(np.float64) for name, tensor in load_file(path).items()}


class LogprobOracle:
    """Log-probabilities in float64 of one model and its adapters; computed twice each, kept for the next question.

    Args:
        model: folder of the model. adapters: folder of each adapter, by name.
    Raises:
        OracleDisagreement: the oracle misses a known answer on this machine.
    """

    def __init__(self, model: Path, adapters: Mapping[str, Path]) -> None:
        canary.check_decoders()
        self._settings, self._weights = read_model(model)
        self.adapters: dict[str, Adapter] = {name: read_adapter(folder) for name, folder in adapters.items()}
        self._learnt: dict[str | None, Meaning] = {}
        self._known: dict[tuple[str | None, tuple[int, ...]], tuple[Array, Array]] = {}
        self._passes = lru_cache(_KEPT_PASSES)(self._forward)

    @property
    def weights(self) -> Weights:
        """Of the base model."""
        return self._weights

    def learn(self, name: str, meaning: Meaning) -> None:
        """Answer for one more adapter, under a name that is not known yet."""
        self._learnt[name] = meaning
        if not meaning.weights:
            self.adapters[name] = meaning.adapter

    def logprobs(self, prompt: Sequence[int], identity: str | None) -> Array:
        """[n] token ids → [n − 1] logprobs of tokens 1 … n − 1 in nat; `identity` None is the base model.

        Raises:
            OracleDisagreement: two computations differ.
        """
        return self._of(prompt, identity)[0]

    def behind_best(self, prompt: Sequence[int], identity: str | None) -> Array:
        """[n] token ids → [n − 1]: by how much the best token beats token 1 … n − 1 of the prompt, nat; as in `logprobs`."""
        return self._of(prompt, identity)[1]

    def _of(self, prompt: Sequence[int], identity: str | None) -> tuple[Array, Array]:
        key = (identity, tuple(prompt))
        if key not in self._known:
            following = self.next_logprobs(prompt, identity)
            own = of_tokens(following, prompt)
            self._known[key] = own, following[:-1].max(axis=-1) - own
        return self._known[key]

    def next_logprobs(self, text: Sequence[int], identity: str | None) -> Array:
        """[n] token ids → [n, vocabulary] in nat, read-only: row t is over what follows tokens 0 … t.

        Raises:
            OracleDisagreement: two computations differ.
        """
        return self._passes(identity, tuple(text))

    def supposing(self, adapter: Adapter, prompt: Sequence[int]) -> Array:
        """What `logprobs` would be with this adapter, computed once: no reference, but what a fault would give."""
        return of_tokens(next_logprobs_once(self._settings, self._weights, adapter, prompt), prompt)

    def _forward(self, identity: str | None, text: tuple[int, ...]) -> Array:
        if meaning := self._learnt.get(identity):
            weights = {**self._weights, **meaning.weights}
            following = next_logprobs(self._settings, weights, meaning.adapter, text)
        else:
            adapter = NO_ADAPTER if identity is None else self.adapters[identity]
            following = next_logprobs(self._settings, self._weights, adapter, text)
        following.flags.writeable = False
        return following
