"""Page tables: which slots of the cache the tokens of each request lie in."""

import numpy as np
import numpy.typing as npt

from kit.attention_spec import Cached
from kit.synthetic.stream import words

UNUSED_SLOTS = 17
"""Slots that belong to no request; more where pages are not filled."""
BEYOND = 1 << 16


def page_table(spec: Cached, label: str, lengths: tuple[int, ...]) -> tuple[tuple[npt.NDArray[np.int64], ...], int]:
    """Per request, the slots of its tokens in order; and how many slots the cache has.

    A request starts a page of its own, as in SGLang, and leaves the end of its last page unused. Page 0 is never used.
    """
    size = spec.page_size
    pages = [-(-length // size) for length in lengths]
    used, spare = sum(pages), -(-UNUSED_SLOTS // size)
    first = -(-BEYOND // size) if spec.pages == "beyond-16-bits" else 1
    order = first + _order(spec, label, pages, used + spare)
    ends = np.cumsum([0, *pages])
    inside = np.arange(size)
    tables = [
        (order[start:end, None] * size + inside[None, :]).ravel()[:length].astype(np.int64)
        for start, end, length in zip(ends[:-1], ends[1:], lengths, strict=True)
    ]
    return tuple(tables), (first + used + spare) * size


def _order(spec: Cached, label: str, pages: list[int], available: int) -> npt.NDArray[np.int64]:
    """Page numbers from 0, as many as are used, request by request."""
    used = sum(pages)
    match spec.pages:
        case "ascending":
            return np.arange(used, dtype=np.int64)
        case "descending":
            return np.arange(used, dtype=np.int64)[::-1].copy()
        case "interleaved":  # as requests grow side by side, one page at a time
            turns = [(turn, request) for request, count in enumerate(pages) for turn in range(count)]
            places = {place: number for number, place in enumerate(sorted(turns))}
            return np.array([places[turn] for turn in turns], dtype=np.int64)
        case "shuffled" | "beyond-16-bits":
            return np.argsort(words(f"{label}/pages", available), kind="stable")[:used].astype(np.int64)
