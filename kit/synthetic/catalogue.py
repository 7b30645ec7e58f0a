"""The synthetic models and adapters: shapes and names. Their weights follow from these (`kit.synthetic.weights`)."""

from collections.abc import Iterable
from dataclasses import dataclass

from kit.names import unknown


@dataclass(frozen=True)
class AdapterShape:
    """A LoRA adapter on all seven linear modules of every layer.

    Attributes:
        rank, alpha: scaling is alpha / rank; with a power of two, two backends can agree bit for bit and hide a fault.
        strength: B ~ N(0, strength² / rank). 0.3 moves logprobs far more than any noise, and leaves the model itself.
    """

    name: str
    rank: int
    alpha: int
    strength: float = 0.3


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder with grouped-query attention and normalised queries and keys, in the layout of Qwen3."""

    name: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    positions: int
    adapters: tuple[AdapterShape, ...]
    rope_theta: float = 10000.0
    norm_epsilon: float = 1e-6


TINY_QWEN3 = ModelShape(
    name="tiny-qwen3",
    vocabulary=2048,
    hidden=256,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=64,
    intermediate=512,
    positions=512,
    adapters=(
        AdapterShape("adapter-0", rank=8, alpha=13),  # scaling 1.625
        AdapterShape("adapter-1", rank=16, alpha=22),  # scaling 1.375
    ),
)

MODELS: dict[str, ModelShape] = {model.name: model for model in (TINY_QWEN3,)}


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
        for adapter in model.adapters:
            place = adapter_folder(model.name, adapter.name)
            names |= {f"{place}/adapter_config.json", f"{place}/adapter_model.safetensors"}
    return frozenset(names)
