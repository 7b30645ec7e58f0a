"""Upstream's LoRA logprob tests on real models, each a row of ``profiles/lora_models.toml``."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from kit.check_spec import Published
from kit.measurement import Record
from kit.names import unknown
from kit.paths import data_folder
from kit.toml import load_toml

LORA_MODELS_FILE = "lora_models.toml"

AttentionKind = Literal["dense", "sinks", "latent", "unpinned"]
"""What an attention backend must cover: ``sinks`` as GPT-OSS has, ``latent`` as DeepSeek has; ``unpinned``: the engine chooses."""


class LoraModel(Record):
    """One row.

    Attributes:
        name: how kit calls it: the subject in ``lora-logprob/<name>/trainer-kl``.
        model, adapter: assets; the adapter's also holds the recorded sample.
        test: file of the upstream test.
        rank: max_lora_rank. tp: GPUs over which the model is split. lora_backend: of SGLang.
        limit: of mean ½Δ² between engine and trainer, nat².
        attention: which attention backends of the profile serve it.
        engine: further keyword arguments of `sglang.Engine` that the test gives.
        published: what others measured in this test.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    model: str
    adapter: str
    test: str = Field(pattern=r"^test_[a-z0-9_]+\.py$")
    rank: int = Field(ge=1)
    tp: int = Field(ge=1)
    lora_backend: str = "triton"
    limit: float = Field(gt=0)
    attention: AttentionKind
    engine: dict[str, JsonValue] = Field(default_factory=dict)
    published: tuple[Published, ...] = ()

    @property
    def arguments(self) -> dict[str, JsonValue]:
        """The keyword arguments of `sglang.Engine` that the upstream test gives on every vendor."""
        lora: dict[str, JsonValue] = {"max_lora_rank": self.rank, "lora_backend": self.lora_backend}
        return {"tp_size": self.tp, **lora, **self.engine}


class LoraModels(Record):
    """All rows of a file; names are unique."""

    model: tuple[LoraModel, ...]

    @model_validator(mode="after")
    def _unique(self) -> Self:
        names = [model.name for model in self.model]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two models are called {twice[0]}")
        return self


def load_lora_models(path: Path | None = None) -> dict[str, LoraModel]:
    """The rows of a file by name, by default ``profiles/lora_models.toml``.

    Raises:
        UsageFault: a damaged file, a wrong key, or a name that two rows claim.
    """
    path = path or data_folder("profiles") / LORA_MODELS_FILE
    return {model.name: model for model in load_toml(path, LoraModels).model}


def find_lora_model(name: str, models: dict[str, LoraModel]) -> LoraModel:
    """The row of this name.

    Raises:
        UsageFault: no such row; the near matches are named.
    """
    if found := models.get(name):
        return found
    raise unknown("model of lora_models.toml", name, models)
