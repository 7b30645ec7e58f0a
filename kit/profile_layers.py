"""A profile's TOML file on top of the files that it extends, key by key, and which of them set each value.

    profiles/MI355X-4gpu.toml   extends = "families/mi35x"
    profiles/families/mi35x.toml   extends = "families/rocm"
    profiles/families/rocm.toml

Tables are merged; a value or an array takes the place of the one below it, and a table that says how something is done that
of one that says why it is ``absent``, or the other way round. What names a profile is its own alone.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kit.errors import UsageFault
from kit.toml import parse_value, read_toml, too_deep

COMMAND_LINE: Final = "command line"
DEFAULT: Final = "default"
DEEPEST: Final = 3
"""How many files one profile may consist of."""
CHANGED: Final = ".changed"
"""Follows the name of a profile of which the command line changed a value."""

_NOT_INHERITED = ("name", "title", "aliases", "extends")
_ABSENT = "absent"
_REFERENCE = re.compile(r"(families/)?[A-Za-z0-9][A-Za-z0-9._-]*")
_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True)
class Layers:
    """The values of a profile, not yet checked against its schema.

    Attributes:
        path: the profile's own file.
        data: the merged values.
        origin: for the path of every value, such as ``engine.dtype``, the file that set it, relative to the folder of profiles; or
            `COMMAND_LINE`.
    """

    path: Path
    data: dict[str, object]
    origin: dict[str, str] = field(default_factory=dict)

    def origin_of(self, key: str) -> str:
        """Who set the value at `key`, or what holds it; `DEFAULT` where nobody did."""
        while key:
            if key in self.origin:
                return self.origin[key]
            key = key.rpartition(".")[0]
        return DEFAULT

    def file_of(self, key: str) -> str:
        """The file in which a fault at `key` is to be corrected: the profile's own where nobody set it."""
        origin = self.origin_of(key)
        if origin == COMMAND_LINE:
            return f"--set {key}"
        return str(self.path if origin == DEFAULT else self.path.parent / origin)

    def with_changes(self, changes: Iterable[str]) -> "Layers":
        """On top, what ``--set KEY=VALUE`` says; the result has another name, since it is another profile.

        Raises:
            UsageFault: not of that form, or a key that names the profile.
        """
        merged = self
        for change in changes:
            key, sign, value = change.partition("=")
            key = key.strip()
            if not sign or not _KEY.fullmatch(key):
                raise UsageFault(f"--set is '{change}'", "give KEY=VALUE, such as time.case=10min")
            if key.split(".", 1)[0] in _NOT_INHERITED:
                raise UsageFault(f"--set cannot change '{key}'", "write a profile of your own")
            nested: dict[str, object] = {}
            inner = nested
            *tables, last = key.split(".")
            for table in tables:
                inner[table] = inner = {}
            inner[last] = parse_value(value.strip())
            merged = _on_top(merged, nested, COMMAND_LINE)
        if merged is self:
            return self
        own = {"name": f"{self.data.get('name')}{CHANGED}", "aliases": []}
        return Layers(self.path, merged.data | own, merged.origin | dict.fromkeys(own, COMMAND_LINE))


def read_layers(path: Path) -> Layers:
    """The file at `path`, and what it extends.

    Raises:
        UsageFault: one of them is damaged or missing, a file extends itself in the end, or there are more than `DEEPEST`.
    """
    folder = path.parent
    chain: list[tuple[str, dict[str, object]]] = []
    place = path
    while True:
        name = place.relative_to(folder).as_posix()
        if name in (known := [seen for seen, _ in chain]):
            raise UsageFault(f"{path}: {' extends '.join([*known, name])}", "take one 'extends' out")
        data = read_toml(place)
        chain.append((name, data))
        reference = data.get("extends")
        if reference is None:
            break
        if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
            raise UsageFault(
                f"{place}: key 'extends': expected a profile or a family, such as 'families/rocm', found {reference!r}",
                "correct the file",
            )
        if len(chain) == DEEPEST:
            raise UsageFault(f"{path}: consists of more than {DEEPEST} files", "take one 'extends' out")
        below = folder / f"{reference}.toml"
        if not below.is_file():
            there = sorted(
                file.relative_to(folder).with_suffix("").as_posix() for file in folder.glob("families/*.toml")
            )
            raise UsageFault(
                f"{place}: key 'extends': there is no file {below}", f"families: {', '.join(there) or 'none'}"
            )
        place = below
    try:
        return _joined(path, chain)
    except RecursionError:
        raise too_deep(str(path)) from None


def _joined(path: Path, chain: list[tuple[str, dict[str, object]]]) -> Layers:
    merged = Layers(path, {})
    for name, data in reversed(chain):
        own = {key: value for key, value in data.items() if key != "extends"}
        inherited = own if name == chain[0][0] else {k: v for k, v in own.items() if k not in _NOT_INHERITED}
        merged = _on_top(merged, inherited, name)
    return merged


def leaves(data: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every value with its path; an empty table counts as one."""
    for key, value in data.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def _on_top(below: Layers, values: dict[str, object], origin: str) -> Layers:
    merged = _merged(below.data, values)
    set_here = dict.fromkeys((path for path, _ in leaves(values)), origin)
    kept = {path for path, _ in leaves(merged)}
    return Layers(below.path, merged, {path: who for path, who in (below.origin | set_here).items() if path in kept})


def _merged(below: dict[str, object], above: dict[str, object]) -> dict[str, object]:
    merged = dict(below)
    for key, value in above.items():
        held = merged.get(key)
        if isinstance(held, dict) and isinstance(value, dict) and (_ABSENT in held) == (_ABSENT in value):
            merged[key] = _merged(held, value)
        else:
            merged[key] = value
    return merged
