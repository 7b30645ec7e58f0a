"""Evidence made readable: JSON of any shape becomes plots, tables, pairs or indented text."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from pydantic import JsonValue

from kit.evidence import ErrorByPosition, LimitUseByHead, plot_in
from kit.results.report.plots import error_by_position, heads_caption, limit_use_by_head, positions_caption

_MOST_ROWS = 200
_MOST_COLUMNS = 16
_LONGEST = 20_000
_SHORT = 160


@dataclass(frozen=True)
class Block:
    """One piece of evidence.

    Attributes:
        plot, legend, caption: a drawing; `legend` says which one it is (``positions``, ``heads``).
        header, rows: a table; with one row only, pairs.
        text: anything else. `long` text is folded.
        cut: what was left out.
    """

    title: str
    plot: Markup | None = None
    legend: str = ""
    caption: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    text: str = ""
    long: bool = False
    cut: str = ""


def blocks(evidence: Mapping[str, JsonValue]) -> tuple[Block, ...]:
    """All evidence of a case: plots first, then what has one short value, in one piece, then the rest."""
    short = {key: cell(value) for key, value in evidence.items() if not isinstance(value, (dict, list))}
    short = {key: text for key, text in short.items() if len(text) <= _SHORT and "\n" not in text}
    found = [_block(key, value) for key, value in evidence.items() if key not in short]
    found.sort(key=lambda block: block.plot is None)
    if short:
        place = sum(block.plot is not None for block in found)
        found.insert(place, Block("counts and values", header=tuple(short), rows=(tuple(short.values()),)))
    return tuple(found)


def _block(key: str, value: JsonValue) -> Block:
    title = key.replace("_", " ")
    match plot_in(value):
        case ErrorByPosition() as plot:
            return Block("error by position", error_by_position(plot), "positions", positions_caption(plot))
        case LimitUseByHead() as heads:
            return Block("limit use by head", limit_use_by_head(heads), "heads", heads_caption(heads))
        case None:
            pass
    if isinstance(value, dict) and value and _flat(value):
        return Block(title, header=tuple(value), rows=(tuple(cell(item) for item in value.values()),))
    if isinstance(value, list) and value and (columns := _columns(value)):
        return _table(title, columns, [item for item in value if isinstance(item, dict)])
    if not isinstance(value, (dict, list)):
        return _text(title, cell(value))
    if isinstance(value, list) and all(not isinstance(item, (dict, list)) for item in value):
        return _text(title, ", ".join(cell(item) for item in value) or "none")
    return _text(title, json.dumps(value, indent=1, ensure_ascii=False))


def _text(title: str, text: str) -> Block:
    cut = (
        f"the first {_LONGEST:,} of {len(text):,} characters; all of it in result.json" if len(text) > _LONGEST else ""
    )
    return Block(title, text=text[:_LONGEST], long=len(text) > _SHORT or "\n" in text, cut=cut)


def _table(title: str, columns: tuple[str, ...], records: Sequence[dict[str, JsonValue]]) -> Block:
    rows = tuple(
        tuple(cell(record[name]) if name in record else "" for name in columns) for record in records[:_MOST_ROWS]
    )
    cut = (
        f"the first {_MOST_ROWS} of {len(records):,} rows; all of them in result.json"
        if len(records) > _MOST_ROWS
        else ""
    )
    return Block(title, header=columns, rows=rows, cut=cut)


def _flat(value: Mapping[str, JsonValue]) -> bool:
    return len(value) <= _MOST_COLUMNS and all(not isinstance(item, (dict, list)) for item in value.values())


def _columns(records: Sequence[JsonValue]) -> tuple[str, ...]:
    """The columns of a list of flat records; none where it is not one."""
    names: dict[str, None] = {}
    for record in records:
        if not isinstance(record, dict) or not _flat(record):
            return ()
        names.update(dict.fromkeys(record))
    return tuple(names) if len(names) <= _MOST_COLUMNS else ()


def cell(value: JsonValue) -> str:
    """One value: nine significant digits, at which served and reference of float32 still differ."""
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "–"
        case float() if math.isfinite(value):
            return f"{value:.9g}"
        case str():
            return value
        case _:
            return json.dumps(value, ensure_ascii=False)
