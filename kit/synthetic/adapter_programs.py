"""Programs of an adapter's life by name: those that are written out, and the random walk (`kit.synthetic.adapter_walk`)."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from kit.names import unknown
from kit.synthetic.adapter_walk import (
    Batch,
    Content,
    Load,
    Refusal,
    Refuse,
    Reload,
    Row,
    Step,
    Unload,
    walk,
)
from kit.synthetic.program_names import LAST_POSITIONS, ONE_SLOT, REFUSED, RELOAD, WALK

PROGRAMS = (WALK, ONE_SLOT, RELOAD, LAST_POSITIONS, *(f"{REFUSED}{kind}" for kind in Refusal))

_LONG = 2
"""The prompt of 17 tokens."""


def program(name: str, session: Sequence[str], slots: int, seed: int, operations: int) -> tuple[Step, ...]:
    """The steps of a program.

    Args:
        session: names of the adapters that the engine was started with, at least two; each is a shape of the catalogue.
        slots: of the engine. seed, operations: of the walk; the others are what they are.
    Raises:
        UsageFault: no such program; the near matches are named.
    """
    made: dict[str, Callable[[], Sequence[Step]]] = {
        WALK: lambda: walk(session, seed, operations, slots),
        ONE_SLOT: lambda: [*_one_slot(session, slots)],
        RELOAD: lambda: [*_reload(session)],
        LAST_POSITIONS: lambda: [*_last_positions(session)],
    }
    made |= {f"{REFUSED}{kind}": lambda kind=kind: [*_refused(kind, session, slots)] for kind in Refusal}  # type: ignore[misc]
    if name not in made:
        raise unknown("program of an adapter's life", name, made)
    return tuple(made[name]())


def _one_slot(session: Sequence[str], slots: int) -> Iterator[Step]:
    """All slots but one are pinned, and every identity comes after every other in the one that is left.

    So each adapter follows those that have more modules or a larger rank, fewer or smaller, and the base model.
    """
    for place in range(slots - 1):
        pinned = Load(f"pinned-{place}", Content(session[place], 1), pinned=True)
        yield Step("pin", pinned, (_alone(pinned.name),))
    for identity in _every_pair((None, *session)):
        yield Step("one", None, (_alone(identity),))


def _every_pair(identities: Sequence[str | None]) -> Iterator[str | None]:
    """An order in which each identity comes right after each other one exactly once: a Eulerian circuit of the complete digraph."""
    for place, identity in enumerate(identities):
        for other in identities[place + 1 :]:
            yield identity
            yield other
    yield identities[0]


def _last_positions(session: Sequence[str]) -> Iterator[Step]:
    """Two identities in a batch that want no logprobs of their prompts, so that the output head is asked for two positions only."""
    for first, second in pairwise((None, *session, None)):
        yield Step("mixed", None, ((Row(first, _LONG, start=-1), Row(second, _LONG, start=-1)),))


def _reload(session: Sequence[str]) -> Iterator[Step]:
    """One name, under which every shape comes and goes: other modules, other ranks, other weights of the same shape, the same again."""
    name = "again"
    contents = [Content(shape, edition) for shape in session for edition in (1, 2)]
    contents += [contents[-1], *(Content(shape, 1) for shape in reversed(session))]
    yield Step("load", Load(name, contents[0]), (_alone(name),))
    for _, content in pairwise(contents):
        yield Step("reload", Reload(name, content), (_alone(name), (Row(None, _LONG), Row(name, _LONG))))
    yield Step("unload", Unload(name), (_alone(None),))


def _refused(kind: Refusal, session: Sequence[str], slots: int) -> Iterator[Step]:
    """After a refusal everybody else is what they were, and the name can be loaded properly."""
    others, name = [f"other-{place}" for place in range(slots - 1)], f"life-{kind}"
    pinned = kind is Refusal.TOO_MANY_PINNED
    for place, other in enumerate(others):
        yield Step("pin" if pinned else "load", Load(other, Content(session[place], 1), pinned), (_alone(other),))
    everybody: tuple[Batch, ...] = tuple((Row(identity, _LONG),) for identity in (None, *session[:2], *others))
    mixed = (Row(None, _LONG), Row(others[0], _LONG))
    yield Step("mixed", None, (*everybody, mixed))
    if kind is Refusal.LOADED_NAME:
        yield Step("refuse", Refuse(kind, others[0]), (mixed, *everybody))
        yield Step("reload", Reload(others[0], Content(session[-1], 1)), (mixed, *everybody))
        return
    yield Step("refuse", Refuse(kind, name), (mixed, *everybody))
    yield Step("load", Load(name, Content(session[-1], 1)), (_alone(name), mixed, *everybody))


def _alone(identity: str | None) -> Batch:
    return (Row(identity, _LONG),)
