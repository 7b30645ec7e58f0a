"""Upstream's LoRA logprob tests on real models, each a row of ``profiles/lora_models.toml``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue

from kit.check_spec import Published
from kit.model_table import ModelRow, ModelTable, find_row, load_rows

LORA_MODELS_FILE = "lora_models.toml"

AttentionKind = Literal["dense", "sinks", "latent", "unpinned"]
"""What an attention backend must cover: ``sinks`` as GPT-OSS has, ``latent`` as DeepSeek has; ``unpinned``: the engine chooses."""


class LoraModel(ModelRow):
    """One row.

    Attributes:
        name: the subject in ``lora-logprob/<name>/trainer-kl``.
        model, adapter: assets; the adapter's also holds the recorded sample.
        test: file of the upstream test.
        rank: max_lora_rank. tp: GPUs over which the model is split. lora_backend: of SGLang.
        limit: of mean ½Δ² between engine and trainer, nat².
        attention: which attention backends of the profile serve it.
        engine: further keyword arguments of `sglang.Engine` that the test gives.
        published: what others measured in this test.
    """

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


def load_lora_models(path: Path | None = None) -> dict[str, LoraModel]:
    """The rows of a file by name, by default ``profiles/lora_models.toml``; errors as `kit.model_table.load_rows`."""
    return load_rows(ModelTable[LoraModel], LORA_MODELS_FILE, path)


def find_lora_model(name: str, models: Mapping[str, LoraModel]) -> LoraModel:
    """The row of this name; errors as `kit.model_table.find_row`."""
    return find_row(name, models, LORA_MODELS_FILE)
