"""Tables of real models in ``profiles/``: rows with unique names, found by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Generic, Self, TypeVar

from pydantic import Field, model_validator

from kit.measurement import Record
from kit.names import unknown
from kit.paths import data_folder
from kit.toml import load_toml


class ModelRow(Record):
    """A row; `name` is how kit calls the model: the subject of its cases."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")


Row = TypeVar("Row", bound=ModelRow)


class ModelTable(Record, Generic[Row]):
    """All rows of a file; names are unique."""

    model: tuple[Row, ...]

    @model_validator(mode="after")
    def _unique(self) -> Self:
        names = [model.name for model in self.model]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two models are called {twice[0]}")
        return self


def load_rows(table: type[ModelTable[Row]], file: str, path: Path | None = None) -> dict[str, Row]:
    """The rows of a file by name: `file` in the folder of profiles, or another at `path`.

    Raises:
        UsageFault: a damaged file, a wrong key, or a name that two rows claim.
    """
    return {row.name: row for row in load_toml(path or data_folder("profiles") / file, table).model}


def find_row(name: str, rows: Mapping[str, Row], file: str) -> Row:
    """The row of this name.

    Raises:
        UsageFault: no such row in `file`; the near matches are named.
    """
    if found := rows.get(name):
        return found
    raise unknown(f"model of {file}", name, rows)
