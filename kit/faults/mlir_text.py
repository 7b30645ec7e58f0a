"""Changes of the text of an MLIR module, by what stands there. Each gives the text as it was where it finds no place to act."""

import re
from collections.abc import Callable, Iterable

Edit = Callable[[str], str]
"""From a module's text to a changed one."""


def replaced(pattern: str, new: str) -> Edit:
    """Every match of a regular expression, replaced as `re.sub` does."""
    return lambda text: re.sub(pattern, new, text)


def where_defined(uses: str, old: str, new: str | Callable[[re.Match[str]], str]) -> Edit:
    """In the definition of every value that is used somewhere, one text in place of another.

    Args:
        uses: a regular expression with one group, the name of the value, such as ``%66``.
        old, new: a regular expression for a text in that line, and what stands in its place, as for `re.sub`.

    Names are told apart by place: regions that do not see each other reuse them, so the nearest definition above counts.
    """

    def edit(text: str) -> str:
        spans = {_definition(text, found[1], found.start()) for found in re.finditer(uses, text)}
        return _in_spans(text, (span for span in spans if span is not None), lambda line: re.sub(old, new, line))

    return edit


def _definition(text: str, name: str, before: int) -> tuple[int, int] | None:
    """Where the line stands that defines a value, the last one above a place."""
    found = max((text.rfind(f"{name}{mark}", 0, before) for mark in (" = ", ":")), default=-1)
    return None if found < 0 else (found, text.index("\n", found))


def _in_spans(text: str, spans: Iterable[tuple[int, int]], change: Edit) -> str:
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + change(text[start:end]) + text[end:]
    return text
