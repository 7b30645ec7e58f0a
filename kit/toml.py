"""Loads a TOML file into a model, and turns every fault in it into one line that names file, key and what was expected."""

import json
import tomllib
from datetime import date, datetime, time
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from kit.errors import UsageFault

Model = TypeVar("Model", bound=BaseModel)


def _as_json(value: object) -> str:
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    raise TypeError(f"unexpected {type(value).__name__}")


def load_toml(path: Path, model: type[Model]) -> Model:
    """Read `path` as `model`, with strict types (no string where a number belongs).

    Raises:
        UsageFault: unreadable, not TOML (with its line), or a wrong key, type or unit (with the key's path).
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageFault(f"{path}: cannot be read: {error.strerror}", "check the path and its permissions") from None
    except UnicodeDecodeError:
        raise UsageFault(f"{path}: not UTF-8 text", "save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageFault(f"{path}: not TOML: {error}", "correct that line") from None
    try:
        return model.model_validate_json(json.dumps(data, default=_as_json), strict=True)
    except ValidationError as error:
        raise UsageFault(f"{path}: {_first_fault(error)}", "correct the file") from None


def _first_fault(error: ValidationError) -> str:
    faults = error.errors(include_url=False)
    first = faults[0]
    key = ".".join(str(part) for part in first["loc"]) or "the file"
    if first["type"] == "extra_forbidden":
        text = f"key '{key}' is unknown"
    elif first["type"] == "missing":
        text = f"key '{key}' is missing"
    else:
        shown = json.dumps(first["input"], default=str)
        text = f"key '{key}': {first['msg']}, found {shown[:80]}"
    more = len(faults) - 1
    return text + (f" (and {more} more)" if more else "")
