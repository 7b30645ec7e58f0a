"""Programs of what an adapter lives through: loaded, served, evicted, loaded again with other weights, unloaded, refused.

Data only, and pure: a program follows from its name, the model, the session's adapters and a seed. Every step says what is asked of
the engine and what is served after it, so that a check can hold each answer against the oracle. `identities` tells at any step whose
weights stand under which name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias, TypeVar

from kit.synthetic.draws import below

PROMPTS = (5, 12, 17, 33)
"""Lengths of the prompts that programs ask about; below and above 16, where block sizes of kernels end."""

NEW_TOKENS = 2
"""That every row of a program generates."""

MOST_WALKED = 5
"""Names of its own that a walk has at once, beside the session's adapters."""

_EDITIONS = 3

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Content:
    """Weights of an adapter: modules and rank of a shape of the catalogue; edition 0 has the catalogue's own, others are drawn anew."""

    shape: str
    edition: int = 0

    @property
    def label(self) -> str:
        """What the oracle knows these weights as."""
        return f"{self.shape}@{self.edition}" if self.edition else self.shape


class Refusal(StrEnum):
    """What an engine must refuse with a clear error."""

    NEVER_LOADED = "never-loaded"
    NO_FOLDER = "no-folder"
    TRUNCATED = "weights-truncated"
    RANK = "rank-above-max"
    OTHER_BASE = "other-base"
    LOADED_NAME = "loaded-name"
    UNLOAD_UNKNOWN = "unload-unknown"
    TOO_MANY_PINNED = "too-many-pinned"


@dataclass(frozen=True)
class Load:
    """Load these weights under a free name."""

    name: str
    content: Content
    pinned: bool = False


@dataclass(frozen=True)
class Unload:
    """Unload the adapter of this name."""

    name: str


@dataclass(frozen=True)
class Reload:
    """Unload the adapter of this name, and load other weights, or the same, under it."""

    name: str
    content: Content


@dataclass(frozen=True)
class Refuse:
    """Ask what must be refused; `name` is the one that it is asked of, free unless the kind says otherwise."""

    kind: Refusal
    name: str


Act: TypeAlias = Load | Unload | Reload | Refuse
Kind = Literal["load", "pin", "unload", "reload", "one", "mixed", "base", "evict", "refuse"]


@dataclass(frozen=True)
class Row:
    """One request of a batch.

    Attributes:
        identity: name of the adapter, None for the base model.
        prompt: place in `PROMPTS`.
        start: from which token on the prompt's logprobs are wanted, as SGLang's ``logprob_start_len``; −1 for none of them.
    """

    identity: str | None
    prompt: int
    start: int = 0


Batch: TypeAlias = tuple[Row, ...]


@dataclass(frozen=True)
class Step:
    """One operation, and the batches that are served after it, one after the other."""

    kind: Kind
    act: Act | None
    batches: tuple[Batch, ...]


@dataclass
class Standing:
    """What is loaded, step by step.

    Attributes:
        session: the adapters that the engine was started with; no program unloads them.
        loaded: what stands under the program's own names. pinned: which of them may not be evicted.
    """

    session: tuple[str, ...]
    loaded: dict[str, Content] = field(default_factory=dict)
    pinned: set[str] = field(default_factory=set)

    def take(self, act: Act | None) -> None:
        """The state after this act.

        Raises:
            ValueError: the act is not legal in this state.
        """
        match act:
            case Load(name, content, pinned):
                self._expect(name not in self.loaded and name not in self.session, name)
                self.loaded[name] = content
                if pinned:
                    self.pinned.add(name)
            case Reload(name, content):
                self._expect(name in self.loaded, name)
                self.loaded[name] = content
                self.pinned.discard(name)
            case Unload(name):
                self._expect(name in self.loaded, name)
                del self.loaded[name]
                self.pinned.discard(name)
            case Refuse(Refusal.LOADED_NAME, name):
                self._expect(name in self.loaded or name in self.session, name)
            case Refuse(_, name):
                self._expect(name not in self.loaded and name not in self.session, name)

    def content(self, identity: str | None) -> Content | None:
        """Whose weights an identity has; None for the base model.

        Raises:
            KeyError: nothing is loaded under this name.
        """
        if identity is None:
            return None
        return Content(identity) if identity in self.session else self.loaded[identity]

    @staticmethod
    def _expect(legal: bool, name: str) -> None:
        if not legal:
            raise ValueError(f"not legal for the name {name}")


def walk(session: Sequence[str], seed: int, operations: int, slots: int) -> tuple[Step, ...]:
    """`operations` random operations; each kind comes up in each hundred, and every shape of the session is loaded before one is again.

    Args:
        session: names of the adapters that the engine was started with; each is a shape of the catalogue too.
        slots: of the engine: so many other adapters push one out of its slot, and fewer by one may be pinned.
    """
    return tuple(_Walk(tuple(session), seed, slots).steps(operations))


_DECK: tuple[tuple[Kind, int], ...] = (
    ("load", 12),
    ("pin", 4),
    ("unload", 10),
    ("reload", 14),
    ("one", 16),
    ("mixed", 20),
    ("base", 4),
    ("evict", 10),
    ("refuse", 10),
)
_WALKED_REFUSALS = tuple(kind for kind in Refusal if kind is not Refusal.OTHER_BASE)
"""Tensors of another base are not among them: engines die of these (docs/findings/0042), and a case of its own asks."""


class _Walk:
    def __init__(self, session: tuple[str, ...], seed: int, slots: int) -> None:
        self._label, self._drawn, self._slots = f"adapter-walk/{seed}", 0, slots
        self._standing = Standing(session)
        self._kinds: list[Kind] = []
        self._shapes: list[str] = []
        self._refusals: list[Refusal] = []
        self._editions: dict[str, int] = {}

    def steps(self, operations: int) -> Iterator[Step]:
        for _ in range(operations):
            if not self._kinds:
                self._kinds = self._shuffled([kind for kind, count in _DECK for _ in range(count)])
            step = self._step(self._kinds.pop())
            yield step

    def _step(self, wanted: Kind) -> Step:
        standing = self._standing
        kind = self._legal(wanted)
        act: Act | None = None
        match kind:
            case "load" | "pin":
                act = Load(self._free(), self._content(), kind == "pin")
            case "unload":
                act = Unload(self._choose(sorted(standing.loaded)))
            case "reload":
                act = Reload(self._choose(sorted(standing.loaded)), self._content())
            case "refuse":
                act = self._refuse()
        standing.take(act)
        return Step(kind, act, tuple(self._batches(kind, act)))

    def _legal(self, wanted: Kind) -> Kind:
        """The wanted kind, or what comes nearest where that is not legal now."""
        standing = self._standing
        if wanted == "pin" and len(standing.pinned) >= self._slots - 1:
            wanted = "load"
        if wanted in ("load", "pin") and len(standing.loaded) >= MOST_WALKED:
            return "unload"
        if wanted in ("unload", "reload") and not standing.loaded:
            return "load"
        if wanted == "evict" and not self._evictable():
            return "one"
        return wanted

    def _batches(self, kind: Kind, act: Act | None) -> Iterator[Batch]:
        everyone = self._identities()
        match kind:
            case "load" | "pin" | "reload":
                assert isinstance(act, Load | Reload)
                yield (self._row(act.name),)
            case "unload" | "refuse":  # nobody else is hurt
                yield tuple(self._row(name) for name in self._some([None, *everyone], 2))
            case "one":
                own = sorted(self._standing.loaded)
                yield (self._row(self._choose(own if own and self._below(2) else everyone)),)
            case "mixed":
                yield tuple(self._row(name) for name in self._some([None, *everyone], 2 + self._below(3)))
            case "base":
                yield (self._row(None),)
            case "evict":
                name = self._choose(self._evictable())
                yield (self._row(name),)
                for other in self._some([other for other in everyone if other != name], self._slots):
                    yield (self._row(other),)
                yield (self._row(name),)

    def _refuse(self) -> Refuse:
        if not self._refusals:
            self._refusals = self._shuffled(list(_WALKED_REFUSALS))
        kind = self._refusals.pop()
        if kind is Refusal.TOO_MANY_PINNED and len(self._standing.pinned) < self._slots - 1:
            kind = Refusal.NO_FOLDER
        taken = kind is Refusal.LOADED_NAME
        return Refuse(kind, self._choose(self._identities()) if taken else f"refused-{kind}")

    def _content(self) -> Content:
        if not self._shapes:
            self._shapes = self._shuffled(list(self._standing.session))
        shape = self._shapes.pop()
        self._editions[shape] = self._editions.get(shape, 0) % _EDITIONS + 1
        return Content(shape, self._editions[shape])

    def _free(self) -> str:
        return next(n for i in range(MOST_WALKED) if (n := f"walk-{i}") not in self._standing.loaded)

    def _identities(self) -> list[str]:
        return [*self._standing.session, *sorted(self._standing.loaded)]

    def _evictable(self) -> list[str]:
        return sorted(set(self._standing.loaded) - self._standing.pinned)

    def _row(self, identity: str | None) -> Row:
        prompt = self._below(len(PROMPTS))
        length = PROMPTS[prompt]
        return Row(identity, prompt, (0, length // 2, length - 1, -1)[self._below(4)])

    def _some(self, among: Sequence[str | None], count: int) -> list[str | None]:
        return self._shuffled(list(among))[:count]

    def _choose(self, among: Sequence[str]) -> str:
        return among[self._below(len(among))]

    def _shuffled(self, items: list[_Item]) -> list[_Item]:
        for last in range(len(items) - 1, 0, -1):
            other = self._below(last + 1)
            items[last], items[other] = items[other], items[last]
        return items

    def _below(self, limit: int) -> int:
        self._drawn += 1
        return below(f"{self._label}/{self._drawn}", 1, limit)[0]
