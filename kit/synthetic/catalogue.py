"""The synthetic models and adapters: shapes and names. Their weights follow from these (`kit.synthetic.weights`)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kit.names import unknown

Family = Literal["qwen3", "llama", "gpt_oss"]
"""Architecture; spelled as ``model_type`` in config.json."""

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
HEAD = ("embed_tokens", "lm_head")
JOINT_EXPERTS = ("gate_up_proj", "down_proj")
"""Experts whose gate and up share A: one module, whose B has the rows of gate before those of up."""


@dataclass(frozen=True)
class AdapterShape:
    """A LoRA adapter on some linear modules of every layer.

    Attributes:
        rank, alpha: scaling is alpha / rank; with a power of two, two backends can agree bit for bit and hide a fault.
        strength: B ~ N(0, strength² / rank). 0.3 moves logprobs far more than any noise, and leaves the model itself.
        modules: which modules, by the last part of their names; `MLP` and `JOINT_EXPERTS` mean every expert's where a
            model has experts.
        stabilised: rsLoRA, whose scaling is alpha / √rank.
        shared_outer: experts share A of gate and up and B of down, and files hold all experts in one tensor of three
            dimensions; otherwise each expert has tensors of its own.
    """

    name: str
    rank: int
    alpha: int
    strength: float = 0.3
    modules: tuple[str, ...] = (*ATTENTION, *MLP)
    stabilised: bool = False
    shared_outer: bool = False


@dataclass(frozen=True)
class ExpertShape:
    """Experts instead of one MLP, routed token by token, as in GPT-OSS.

    Attributes:
        count, per_token: experts of a layer, and how many of them a token visits.
        limit: at which gate and up are clamped.
    """

    count: int
    per_token: int
    limit: float


@dataclass(frozen=True)
class ModelShape:
    """A decoder with grouped-query attention. Qwen3 normalises queries and keys; GPT-OSS has attention biases and sinks.

    Attributes:
        adapters: what sessions load unless they name others.
        further: for sessions that name them; not every engine can load all of them at once.
        rope: ``rope_parameters`` of config.json.
        window: GPT-OSS alone: tokens that the layers with even index see, themselves included; the others see all.
        experts: GPT-OSS alone.
    """

    name: str
    family: Family
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    positions: int
    adapters: tuple[AdapterShape, ...]
    further: tuple[AdapterShape, ...]
    norm_epsilon: float
    rope: Mapping[str, str | float | bool] = field(
        default_factory=lambda: {"rope_theta": 10000.0, "rope_type": "default"}
    )
    window: int | None = None
    experts: ExpertShape | None = None

    @property
    def all_adapters(self) -> tuple[AdapterShape, ...]:
        """Every adapter of this model."""
        return (*self.adapters, *self.further)


_DENSE_ADAPTERS = (
    AdapterShape("adapter-0", rank=8, alpha=13),  # scaling 1.625
    AdapterShape("adapter-1", rank=16, alpha=22),  # scaling 1.375
)
_FURTHER_DENSE_ADAPTERS = (
    AdapterShape("rank-4", rank=4, alpha=5),
    AdapterShape("rank-64", rank=64, alpha=90),  # scaling 1.40625
    AdapterShape("rslora", rank=8, alpha=5, stabilised=True),  # scaling 1.77, and 0.625 if the root is forgotten
    AdapterShape("query-value", rank=8, alpha=15, modules=("q_proj", "v_proj")),
    AdapterShape("attention", rank=8, alpha=9, modules=ATTENTION),
    AdapterShape("mlp", rank=8, alpha=17, modules=MLP),
    AdapterShape("embedding", rank=8, alpha=12, modules=("embed_tokens",)),
    AdapterShape("lm-head", rank=8, alpha=14, modules=("lm_head",)),
    AdapterShape("head", rank=16, alpha=23, modules=HEAD),
    AdapterShape("everything", rank=16, alpha=21, modules=(*ATTENTION, *MLP, *HEAD)),
)

_EXPERT_ADAPTERS = (
    AdapterShape("adapter-0", rank=8, alpha=13, modules=ATTENTION),
    AdapterShape("adapter-1", rank=16, alpha=22, modules=ATTENTION),
)
_FURTHER_EXPERT_ADAPTERS = (
    AdapterShape("rank-4", rank=4, alpha=5, modules=ATTENTION),
    AdapterShape("rank-64", rank=64, alpha=90, modules=ATTENTION),
    AdapterShape("rslora", rank=8, alpha=5, modules=ATTENTION, stabilised=True),
    AdapterShape("query-value", rank=8, alpha=15, modules=("q_proj", "v_proj")),
    AdapterShape("embedding", rank=8, alpha=12, modules=("embed_tokens",)),
    AdapterShape("lm-head", rank=8, alpha=14, modules=("lm_head",)),
    AdapterShape("head", rank=16, alpha=23, modules=HEAD),
    AdapterShape("attention-head", rank=16, alpha=21, modules=(*ATTENTION, *HEAD)),
    AdapterShape("experts", rank=8, alpha=17, modules=MLP),
    AdapterShape("experts-joint", rank=8, alpha=7, modules=JOINT_EXPERTS),
    AdapterShape("shared-outer", rank=8, alpha=19, modules=JOINT_EXPERTS, shared_outer=True),
    AdapterShape(
        "shared-outer-32", rank=32, alpha=43, modules=JOINT_EXPERTS, shared_outer=True
    ),  # the rank of upstream's adapter
    AdapterShape("everything", rank=16, alpha=25, modules=(*ATTENTION, *JOINT_EXPERTS, *HEAD)),
)

TINY_QWEN3 = ModelShape(
    name="tiny-qwen3",
    family="qwen3",
    vocabulary=2048,
    hidden=256,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=64,
    intermediate=512,
    positions=512,
    adapters=_DENSE_ADAPTERS,
    further=_FURTHER_DENSE_ADAPTERS,
    norm_epsilon=1e-6,
)

# Heads, KV heads, intermediate sizes, experts and vocabulary of the next two divide by 4, so that tensor parallelism can split them.

TINY_LLAMA = ModelShape(
    name="tiny-llama",
    family="llama",
    vocabulary=2048,
    hidden=256,
    layers=2,
    heads=8,
    kv_heads=4,
    head_dim=64,
    intermediate=512,
    positions=512,
    adapters=_DENSE_ADAPTERS,
    further=_FURTHER_DENSE_ADAPTERS,
    norm_epsilon=1e-5,
    rope={  # of Llama 3.1, with its context of 8192 scaled down to 64: every branch of the formula is in use
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
)

TINY_GPT_OSS = ModelShape(
    name="tiny-gpt-oss",
    family="gpt_oss",
    vocabulary=2048,
    hidden=256,
    layers=2,
    heads=8,
    kv_heads=4,
    head_dim=64,
    intermediate=256,
    positions=512,
    adapters=_EXPERT_ADAPTERS,
    further=_FURTHER_EXPERT_ADAPTERS,
    norm_epsilon=1e-5,
    rope={  # of GPT-OSS, with its context of 4096 scaled down to 64
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 8.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 64,
    },
    window=32,
    experts=ExpertShape(count=8, per_token=2, limit=7.0),
)

MODELS: dict[str, ModelShape] = {model.name: model for model in (TINY_QWEN3, TINY_LLAMA, TINY_GPT_OSS)}


def find_model(name: str) -> ModelShape:
    """The model of this name.

    Raises:
        UsageFault: there is none; the near matches are named.
    """
    if model := MODELS.get(name):
        return model
    raise unknown("synthetic model", name, MODELS)


def model_folder(model: str) -> str:
    """Where a model lies, relative to the assets folder."""
    return model


def adapter_folder(model: str, adapter: str) -> str:
    """Where an adapter lies, relative to the assets folder."""
    return f"{model}/adapters/{adapter}"


def file_names(models: Iterable[str]) -> frozenset[str]:
    """The path of every file of these models and their adapters, relative to the assets folder.

    Raises:
        UsageFault: an unknown model.
    """
    names: set[str] = set()
    for model in map(find_model, models):
        base = model_folder(model.name)
        names |= {f"{base}/config.json", f"{base}/model.safetensors"}
        for adapter in model.all_adapters:
            place = adapter_folder(model.name, adapter.name)
            names |= {f"{place}/adapter_config.json", f"{place}/adapter_model.safetensors"}
    return frozenset(names)
