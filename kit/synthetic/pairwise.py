"""Choices from a space of dimensions so that every pair of values meets, found greedily and reproducibly."""

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import TypeAlias

Dimensions: TypeAlias = Mapping[str, tuple[object, ...]]
Choice: TypeAlias = dict[str, int]
"""Dimension to index of its value."""
Pair: TypeAlias = tuple[str, int, str, int]

_CANDIDATES = 12
_TRIES = 60


def pairs_of(choice: Choice) -> Iterator[Pair]:
    """All pairs that a choice holds."""
    for left, right in combinations(sorted(choice), 2):
        yield left, choice[left], right, choice[right]


def all_pairs(dimensions: Dimensions) -> Iterator[Pair]:
    """Every pair of values of two different dimensions."""
    for left, right in combinations(sorted(dimensions), 2):
        for i in range(len(dimensions[left])):
            for j in range(len(dimensions[right])):
                yield left, i, right, j


def covering(
    label: str, dimensions: Dimensions, count: int, legal: Callable[[dict[str, object]], bool]
) -> list[Choice]:
    """`count` different legal choices. Of some candidates around an open pair, each time the one that brings
    most new values, then closes most open pairs.

    A pair for which no legal choice is found in 60 tries is taken as illegal.

    Args:
        label: names the random stream.
        legal: whether values, by dimension, may be asked together.
    """
    draw = Draw(label)
    open_pairs = dict.fromkeys(all_pairs(dimensions))
    chosen: list[Choice] = []
    seen: set[tuple[str, int]] = set()
    while len(chosen) < count:
        candidates = list(_legal_choices(draw, dimensions, open_pairs, seen, legal))
        fresh = [c for c in candidates if c not in chosen]
        if not fresh:
            continue
        best = max(fresh, key=lambda choice: _gain(choice, open_pairs, seen))
        chosen.append(best)
        seen.update(best.items())
        for pair in pairs_of(best):
            open_pairs.pop(pair, None)
    return chosen


def _gain(choice: Choice, open_pairs: dict[Pair, None], seen: set[tuple[str, int]]) -> tuple[int, int]:
    """New values first, then new pairs."""
    return len(choice.items() - seen), sum(pair in open_pairs for pair in pairs_of(choice))


def _legal_choices(
    draw: "Draw",
    dimensions: Dimensions,
    open_pairs: dict[Pair, None],
    seen: set[tuple[str, int]],
    legal: Callable[[dict[str, object]], bool],
) -> Iterator[Choice]:
    """Up to 12 legal choices, each around an open pair; a pair around which none is found is taken out of `open_pairs`."""
    wanted = _wanted(open_pairs, seen)
    for _ in range(_CANDIDATES):
        pair = wanted[draw.below(len(wanted))] if wanted else next(iter(open_pairs), None)
        choice = _legal(draw, dimensions, pair, legal)
        if choice is not None:
            yield choice
        elif pair is not None:
            del open_pairs[pair]
            wanted = _wanted(open_pairs, seen)


def _legal(
    draw: "Draw", dimensions: Dimensions, pair: Pair | None, legal: Callable[[dict[str, object]], bool]
) -> Choice | None:
    for _ in range(_TRIES):
        choice = {name: draw.below(len(values)) for name, values in dimensions.items()}
        if pair is not None:
            choice[pair[0]], choice[pair[2]] = pair[1], pair[3]
        if legal(values_of(dimensions, choice)):
            return choice
    return None


def _wanted(open_pairs: dict[Pair, None], seen: set[tuple[str, int]]) -> list[Pair]:
    """The open pairs with most values that no choice has yet; none where every value has been chosen."""
    news = {pair: ((pair[0], pair[1]) not in seen) + ((pair[2], pair[3]) not in seen) for pair in open_pairs}
    most = max(news.values(), default=0)
    return [pair for pair, new in news.items() if new == most] if most else []


def values_of(dimensions: Dimensions, choice: Choice) -> dict[str, object]:
    """The values of a choice, by dimension."""
    return {name: dimensions[name][index] for name, index in choice.items()}


class Draw:
    """Small integers that follow from a label, the same on every machine: SHA-256 of the label and a counter."""

    def __init__(self, label: str) -> None:
        self._label, self._block = label, 0
        self._left: list[int] = []

    def below(self, limit: int) -> int:
        """From 0 to `limit` − 1."""
        if not self._left:
            digest = hashlib.sha256(f"{self._label}/{self._block}".encode()).digest()
            self._left = list(struct.unpack("<8I", digest))
            self._block += 1
        return self._left.pop() * limit >> 32
