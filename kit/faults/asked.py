"""What a case of several identities asks of an engine, in order, so that it can be derived which faults it must see.

Data only, and careful: a batch counts as one batch of the engine only where nothing can split it, and an adapter counts as evicted
only where the slots cannot have held it, whatever the engine evicts first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from kit.check_spec import AdapterLife, BatchInvariance, CheckSpec, FirstRequests, MixedBatch, MixedBatches
from kit.synthetic.adapter_programs import program
from kit.synthetic.adapter_walk import NEW_TOKENS, PROMPTS, Batch, Load, Reload, Standing

MOST_TOKENS = 512
"""So many tokens of prompts meet in one prefill batch for certain."""


@dataclass(frozen=True)
class AskedRow:
    """A row that is judged.

    Attributes:
        name: under which it asks; None is the base model. content: label of the weights that must serve it.
        loads: how often the case has loaded something under this name by then.
        tokens: of its prompt. new: how many it generates.
    """

    name: str | None
    content: str | None
    loads: int
    tokens: int
    new: int


@dataclass(frozen=True)
class AskedBatch:
    """Rows in one message.

    Attributes:
        free: slots that are not taken by a pinned adapter of the case; None where every identity has one.
        pinned: names that are. follows: whether the batch before is still what the engine did last, and all is loaded as it was then.
    """

    rows: tuple[AskedRow, ...]
    free: int | None
    pinned: frozenset[str] = frozenset()
    follows: bool = True

    @property
    def tokens(self) -> int:
        """Of all prompts."""
        return sum(row.tokens for row in self.rows)

    @property
    def identities(self) -> frozenset[str | None]:
        """By name."""
        return frozenset(row.name for row in self.rows)

    @property
    def contents(self) -> frozenset[str]:
        """Labels of the adapters' weights."""
        return frozenset(row.content for row in self.rows if row.content is not None)

    @property
    def together(self) -> bool:
        """Whether its rows are one batch of the engine for certain; the base model takes a slot too."""
        fits = self.free is None or len(self.identities - self.pinned) <= self.free
        return fits and self.tokens <= MOST_TOKENS


Asked: TypeAlias = Sequence[AskedBatch]
Counts: TypeAlias = Callable[[str], bool]
"""Of the label of an adapter's weights."""


def asked(spec: CheckSpec) -> Asked:
    """The batches of a case, in order; empty for a check that sends no batches of several identities."""
    match spec:
        case MixedBatches(batches=batches, slots=slots):
            return [_sent(batch, slots) for batch in batches]
        case BatchInvariance(batches=batches):
            return [_sent(batch, None) for batch in batches]
        case AdapterLife():
            return _of_life(spec)
        case FirstRequests():
            return list(_of_first_requests(spec))
        case _:
            return []


def _sent(batch: MixedBatch, slots: int | None) -> AskedBatch:
    rows = zip(batch.composition, batch.prompt_lengths, batch.new_tokens, strict=True)
    return AskedBatch(tuple(AskedRow(name, name, 0, tokens, new) for name, tokens, new in rows), slots)


@lru_cache(maxsize=64)
def _of_life(spec: AdapterLife) -> Asked:
    return tuple(_life(spec))


def _life(spec: AdapterLife) -> Iterator[AskedBatch]:
    standing, loads = Standing(spec.adapters), dict[str, int]()
    for step in program(spec.program, spec.adapters, spec.slots, spec.seed, spec.operations):
        if isinstance(step.act, Load | Reload):
            loads[step.act.name] = loads.get(step.act.name, 0) + 1
        standing.take(step.act)
        pinned = frozenset(standing.pinned)
        for place, batch in enumerate(step.batches):
            rows = tuple(_rows(batch, standing, loads))
            yield AskedBatch(rows, spec.slots - len(pinned), pinned, follows=step.act is None or place > 0)


def _rows(batch: Batch, standing: Standing, loads: dict[str, int]) -> Iterator[AskedRow]:
    for row in batch:
        content = standing.content(row.identity)
        label = None if content is None else content.label
        yield AskedRow(row.identity, label, loads.get(row.identity or "", 0), PROMPTS[row.prompt], NEW_TOKENS)


def _of_first_requests(spec: FirstRequests) -> Iterator[AskedBatch]:
    """As `kit.checks.first_requests` asks; one name is loaded twice for every shape. Questions that are repeated stand once."""

    def alone(name: str, content: str, loads: int = 0) -> AskedBatch:
        return AskedBatch((AskedRow(name, content, loads, PROMPTS[-1], NEW_TOKENS),), spec.slots, follows=False)

    for place, shape in enumerate(spec.adapters):
        others = [other for other in spec.adapters if other != shape]
        first, second = 2 * place + 1, 2 * place + 2
        yield alone("first", f"{shape}@1", first)
        yield alone(others[0], others[0])
        yield alone("first", f"{shape}@2", second)
        for other in others[: spec.slots]:
            yield alone(other, other)
        yield alone("first", f"{shape}@2", second)


def mixed(batch: AskedBatch) -> bool:
    """Whether it is one batch in which weights differ."""
    return batch.together and len({row.content for row in batch.rows}) > 1


def crowded(batches: Asked, counts: Counts) -> bool:
    """Whether more adapters that count are served than there are slots: then one comes into a slot that another had."""
    served = {row.content for batch in batches for row in batch.rows if row.content and counts(row.content)}
    return _more_than_slots(len(served), batches)


def comes_back(batches: Asked, counts: Counts) -> bool:
    """Whether at some moment more adapters that count were served before, and are again, than there are free slots: one was evicted.

    What is loaded again under a name is another adapter. Pinned ones stay in the slots that they take.
    """
    pinned = frozenset[str]().union(*(batch.pinned for batch in batches))
    keys = [
        {(r.name, r.loads) for r in b.rows if r.content and r.name not in pinned and counts(r.content)} for b in batches
    ]
    for moment, (one, other) in enumerate(pairwise(batches), start=1):
        both = set().union(*keys[:moment]) & set().union(*keys[moment:])
        if one.free is not None and other.free is not None and len(both) > max(one.free, other.free):
            return True
    return False


def _more_than_slots(adapters: int, batches: Asked) -> bool:
    slots = [batch.free + len(batch.pinned) for batch in batches if batch.free is not None]
    return bool(slots) and adapters > max(slots)


def loaded_again(batches: Asked, differ: Callable[[str, str], bool]) -> bool:
    """Whether of two adapters that were loaded under one name, the earlier first, both are served, and they differ in this way."""
    served = {(r.name, r.loads, r.content) for batch in batches for r in batch.rows if r.content and r.loads}
    return any(
        one == other and earlier < later and differ(content, changed)
        for one, earlier, content in served
        for other, later, changed in served
    )


def in_one_slot(batches: Asked, differ: Callable[[str, str], bool]) -> bool:
    """Whether, all slots but one being pinned, an adapter comes right after another in that one, and they differ in this way."""
    alone = [_in_the_only_slot(batch) for batch in batches]
    return any(one is not None and other is not None and differ(one, other) for one, other in pairwise(alone))


def _in_the_only_slot(batch: AskedBatch) -> str | None:
    (row, *others) = batch.rows
    return row.content if batch.free == 1 and not others and row.name not in batch.pinned else None


def after_another(batches: Asked) -> bool:
    """Whether a row of a batch would be served wrongly with the slots of the batch before.

    Both are one batch of the engine each, their adapters stay in their slots, and the earlier one ends as it began, row by row.
    """
    return any(now.follows and _stay(before, now) and _moved(before, now) for before, now in pairwise(batches))


def _stay(before: AskedBatch, now: AskedBatch) -> bool:
    fit = now.free is None or len((before.identities | now.identities) - now.pinned) <= now.free
    return fit and before.together and now.together and len({row.new for row in before.rows}) == 1


def _moved(before: AskedBatch, now: AskedBatch) -> bool:
    earlier = [row.content for row in before.rows]
    return any(row.content != earlier[place % len(earlier)] for place, row in enumerate(now.rows))
