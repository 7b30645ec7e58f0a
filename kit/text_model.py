"""Upstream's text tests of several adapters on real models, each a row of ``profiles/text_models.toml``."""

from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from kit.measurement import Record
from kit.names import unknown
from kit.paths import data_folder
from kit.toml import load_toml

TEXT_MODELS_FILE: Final = "text_models.toml"


class TextLimits(Record):
    """Of one identity: least ROUGE-L, and largest |Δ| of the five largest logprobs of a prompt, nat."""

    rouge_l: float = Field(gt=0, le=1)
    prefill: float = Field(gt=0)


class TextAdapter(TextLimits):
    """An adapter and its limits; `asset` is its row in assets.toml."""

    asset: str


class TextModel(Record):
    """One row.

    Attributes:
        name: how kit calls it: the subject in ``multi-lora/<name>/base-text``.
        model: asset. group: the list of SGLang's lora_utils.py that it stands in.
        max_loaded_loras: of SGLang; None leaves its default.
        base: limits without adapter. adapters: served as adapter-0, adapter-1.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    model: str
    group: str
    max_loaded_loras: int | None = Field(default=None, ge=3)
    base: TextLimits
    adapters: tuple[TextAdapter, TextAdapter]


class TextModels(Record):
    """All rows of a file; names are unique."""

    model: tuple[TextModel, ...]

    @model_validator(mode="after")
    def _unique(self) -> Self:
        names = [model.name for model in self.model]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two models are called {twice[0]}")
        return self


def load_text_models(path: Path | None = None) -> dict[str, TextModel]:
    """The rows of a file by name, by default ``profiles/text_models.toml``.

    Raises:
        UsageFault: a damaged file, a wrong key, or a name that two rows claim.
    """
    return {m.name: m for m in load_toml(path or data_folder("profiles") / TEXT_MODELS_FILE, TextModels).model}


def find_text_model(name: str, models: dict[str, TextModel]) -> TextModel:
    """The row of this name.

    Raises:
        UsageFault: no such row; the near matches are named.
    """
    if found := models.get(name):
        return found
    raise unknown(f"model of {TEXT_MODELS_FILE}", name, models)
