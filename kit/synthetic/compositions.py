"""Which identity each row of a batch has: every class of small batches, and named classes of large ones, by seeded rules.

A composition is a tuple of names of adapters, None for the base model, one per row.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from kit.synthetic.draws import below

Identity: TypeAlias = str | None
Composition: TypeAlias = tuple[Identity, ...]
Pattern: TypeAlias = tuple[int, ...]
"""Rows with the same number have the same identity; 0 is the base model."""


def patterns(rows: int) -> Iterator[Pattern]:
    """Every class of batches of this many rows: which rows are alike, and which of them are the base model.

    Two batches are of one class when renaming adapters turns one into the other. The classes are the partitions of the rows
    and the base model together, so their number is the Bell number of rows + 1: 2, 5, 15, 52 for 1 to 4 rows.
    """

    def further(begun: Pattern) -> Iterator[Pattern]:
        if len(begun) == rows:
            yield begun
            return
        for number in range(max(begun, default=0) + 2):
            yield from further((*begun, number))

    yield from further(())


def every_class(rows: int, adapters: Sequence[str], seed: int) -> Iterator[Composition]:
    """A batch of every class of `patterns`; from class to class the adapters take turns, so that all of them appear."""
    turned, turn = shuffled(adapters, f"every-class/{seed}/{rows}"), 0
    for pattern in patterns(rows):
        names: list[Identity] = [None, *(turned[(turn + place) % len(turned)] for place in range(max(pattern)))]
        turn += max(pattern)
        yield tuple(names[number] for number in pattern)


def shuffled(names: Sequence[str], label: str) -> list[str]:
    """The names in an order that follows from the label alone."""
    keys = below(f"compositions/{label}", len(names), 2**32)
    return [name for _, name in sorted(zip(keys, names, strict=True))]


def random(rows: int, adapters: Sequence[str], seed: int) -> Composition:
    """Every row an identity of its own draw, the base model among them."""
    identities: list[Identity] = [None, *adapters]
    return tuple(identities[place] for place in below(f"compositions/random/{seed}/{rows}", rows, len(identities)))


def parts(total: int, count: int, label: str) -> tuple[int, ...]:
    """`total` as a sum of `count` lengths of at least 1, uneven, by the label.

    Raises:
        ValueError: fewer than one each.
    """
    if not 1 <= count <= total:
        raise ValueError(f"{total} is no sum of {count} lengths")
    lengths = [1 + (total - count) // count] * count
    lengths[0] += (total - count) % count
    for place, moved in enumerate(below(f"compositions/parts/{label}/{total}", count, max(1, lengths[-1] // 2 + 1))):
        moved = min(moved, lengths[place] - 1)
        lengths[place] -= moved
        lengths[(place + 1) % count] += moved
    return tuple(lengths)


def _repeated(names: Sequence[Identity], rows: int) -> Composition:
    return tuple(names[row % len(names)] for row in range(rows))


def _blocks(names: Sequence[Identity], rows: int) -> Composition:
    return tuple(names[row * len(names) // rows] for row in range(rows))


def _with(rows: Sequence[Identity], place: int, identity: Identity) -> Composition:
    return (*rows[:place], identity, *rows[place + 1 :])


NAMED: Final[dict[str, Callable[[Sequence[str], int], Composition]]] = {
    "all-same": lambda a, n: _repeated([a[0]], n),
    "all-base": lambda a, n: _repeated([None], n),
    "alternating": lambda a, n: _repeated([a[0], a[1]], n),
    "alternating-with-base": lambda a, n: _repeated([a[0], None], n),
    "round-robin": lambda a, n: _repeated([a[0], a[1], None, a[2]], n),
    "blocks": lambda a, n: _blocks([a[0], a[1], None, a[2]], n),
    "returning": lambda a, n: _blocks([a[0], a[1], a[0]], n),
    "base-first": lambda a, n: _with(_repeated(a, n), 0, None),
    "base-in-the-middle": lambda a, n: _with(_repeated(a, n), n // 2, None),
    "base-last": lambda a, n: _with(_repeated(a, n), n - 1, None),
    "odd-first": lambda a, n: _with(_repeated([a[0]], n), 0, a[1]),
    "odd-in-the-middle": lambda a, n: _with(_repeated([a[0]], n), n // 2, a[1]),
    "odd-last": lambda a, n: _with(_repeated([a[0]], n), n - 1, a[1]),
    "base-among-one-adapter": lambda a, n: _with(_repeated([a[0]], n), n // 2, None),
    "adapter-among-base": lambda a, n: _with(_repeated([None], n), n // 2, a[0]),
    "all-different": lambda a, n: _repeated([None, *a], n),
    "all-different-reversed": lambda a, n: _repeated([None, *a], n)[::-1],
}
"""The named classes, of two rows and three adapters or more; the first adapters given are those that a class of few takes.

all-same, all-base: one identity. alternating, round-robin: identities take turns. blocks: neighbours are alike. returning: an
adapter, another, the first again. base-…: one row without an adapter, where it stands. odd-…: one row unlike all others.
all-different: as many identities as there are; with more rows than identities they begin anew. …-reversed: the same backwards.
"""


def named(name: str, rows: int, adapters: Sequence[str], seed: int) -> Composition:
    """The batch of a class of `NAMED`; which adapters a class of few takes follows from its name and the seed."""
    return NAMED[name](shuffled(adapters, f"{name.removesuffix('-reversed')}/{seed}"), rows)
