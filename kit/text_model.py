"""Upstream's text tests of several adapters on real models, each a row of ``profiles/text_models.toml``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import Field

from kit.measurement import Record
from kit.model_table import ModelRow, ModelTable, find_row, load_rows

TEXT_MODELS_FILE: Final = "text_models.toml"


class TextLimits(Record):
    """Of one identity: least ROUGE-L, and largest |Δ| of the five largest logprobs of a prompt, nat."""

    rouge_l: float = Field(gt=0, le=1)
    prefill: float = Field(gt=0)


class TextAdapter(TextLimits):
    """An adapter and its limits; `asset` is its row in assets.toml."""

    asset: str


class TextModel(ModelRow):
    """One row.

    Attributes:
        name: the subject in ``multi-lora/<name>/base-text``.
        model: asset. group: the list of SGLang's lora_utils.py that it stands in.
        max_loaded_loras: of SGLang; None leaves its default.
        base: limits without adapter. adapters: served as adapter-0, adapter-1.
    """

    model: str
    group: str
    max_loaded_loras: int | None = Field(default=None, ge=3)
    base: TextLimits
    adapters: tuple[TextAdapter, TextAdapter]


def load_text_models(path: Path | None = None) -> dict[str, TextModel]:
    """The rows of a file by name, by default ``profiles/text_models.toml``; errors as `kit.model_table.load_rows`."""
    return load_rows(ModelTable[TextModel], TEXT_MODELS_FILE, path)


def find_text_model(name: str, models: Mapping[str, TextModel]) -> TextModel:
    """The row of this name; errors as `kit.model_table.find_row`."""
    return find_row(name, models, TEXT_MODELS_FILE)
