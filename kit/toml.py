"""Loads a TOML file into a model, and turns every fault in it into one line that names file, key and what was expected."""

import json
import math
import tomllib
from collections.abc import Callable
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
    return checked(read_toml(path), model, lambda key: str(path))


def read_toml(path: Path) -> dict[str, object]:
    """The values of a file.

    Raises:
        UsageFault: unreadable, or not TOML (with its line).
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageFault(f"{path}: cannot be read: {error.strerror}", "check the path and its permissions") from None
    except UnicodeDecodeError:
        raise UsageFault(f"{path}: not UTF-8 text", "save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageFault(f"{path}: not TOML: {error}", "correct that line") from None
    except ValueError:  # Python reads no integer of thousands of digits
        raise UsageFault(f"{path}: not TOML: a number has too many digits", "correct that number") from None
    except RecursionError:
        raise too_deep(str(path)) from None


def parse_value(text: str) -> object:
    """A value as TOML writes it, else the text itself: ``3``, ``[1, 2]``, ``true``, ``10min``."""
    try:
        values = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return values["value"] if len(values) == 1 else text


def checked(data: dict[str, object], model: type[Model], file_of: Callable[[str], str]) -> Model:
    """`data` as `model`, with strict types.

    Args:
        file_of: from the path of a key to the file that is to be corrected.

    Raises:
        UsageFault: a wrong key, type or unit.
    """
    try:
        if key := _not_finite(data):
            raise UsageFault(
                f"{file_of(key)}: key '{key}': expected a finite number, found nan or inf", "correct the file"
            )
        return model.model_validate_json(json.dumps(data, default=_as_json), strict=True)
    except RecursionError:
        raise too_deep(file_of("")) from None
    except ValidationError as error:
        key, fault = _first_fault(error)
        raise UsageFault(f"{file_of(key)}: {fault}", "correct the file") from None


def too_deep(file: str) -> UsageFault:
    """The fault for a file that no recursion can follow."""
    return UsageFault(f"{file}: its values are nested too deep", "correct the file")


def _not_finite(value: object, key: str = "") -> str | None:
    """The key of the first nan or inf."""
    if isinstance(value, float):
        return None if math.isfinite(value) else key
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = (_not_finite(part, f"{key}.{name}" if key else str(name)) for name, part in parts)
    return next((inner for inner in found if inner), None)


def _first_fault(error: ValidationError) -> tuple[str, str]:
    """Path of the key, and what is wrong."""
    faults = error.errors(include_url=False)
    first = faults[0]
    key = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        text = "its values are nested too deep" if "recursion" in message else message
    elif not key:
        text = message
    elif first["type"] == "extra_forbidden":
        text = f"key '{key}' is unknown"
    elif first["type"] == "missing":
        text = f"key '{key}' is missing"
    else:
        shown = json.dumps(first["input"], default=str)
        text = f"key '{key}': {message}, found {shown[:80]}"
    more = len(faults) - 1
    return key, text + (f" (and {more} more)" if more else "")
