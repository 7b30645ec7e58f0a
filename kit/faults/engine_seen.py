"""Which cases must see a fault inside SGLang's processes. It follows from what a case asks; others may see it too."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kit.check_spec import CachedIdentities, CacheReuse, CheckSpec, DecodeLogprobs, GivenPrompt, PromptLogprobs
from kit.faults.asked import (
    Asked,
    AskedBatch,
    after_another,
    asked,
    comes_back,
    crowded,
    in_one_slot,
    loaded_again,
    mixed,
)
from kit.plan import Case
from kit.synthetic.catalogue import HEAD, MODELS, AdapterShape

_MANY_TOKENS = 64
_MANY_ROWS = 8
_MANY_STEPS = 16
"""Of decode, after which an error that grows stands out."""


@dataclass(frozen=True)
class _Question:
    """A case, as the rules see it."""

    spec: CheckSpec
    batches: Asked
    shapes: Mapping[str, AdapterShape]

    def any(self, holds: Callable[[AskedBatch], bool]) -> bool:
        """Whether a batch is one of the engine's for certain and this holds of it."""
        return any(batch.together and holds(batch) for batch in self.batches)

    def of(self, label: str | None) -> AdapterShape | None:
        """The shape of weights."""
        return self.shapes.get((label or "").partition("@")[0])

    def differ(self, batch: AskedBatch, of: Callable[[AdapterShape], float]) -> bool:
        """Whether adapters of a batch differ in something."""
        return len({of(shape) for label in batch.contents if (shape := self.of(label))}) > 1

    def scaled(self, label: str) -> bool:
        """Whether an adapter's scaling, once more, changes what is served; the fault leaves the embedding's alone."""
        shape = self.of(label)
        return shape is not None and shape.alpha != shape.rank and set(shape.modules) != {"embed_tokens"}

    def layered(self, label: str) -> bool:
        """Whether an adapter has modules in layers."""
        shape = self.of(label)
        return shape is not None and not set(shape.modules) <= set(HEAD)

    def wider(self, one: str, other: str) -> bool:
        """Whether an adapter has modules that the other lacks."""
        left, right = self.of(one), self.of(other)
        return left is not None and right is not None and not set(left.modules) <= set(right.modules)

    def other_scaling(self, one: str, other: str) -> bool:
        """Whether two adapters are scaled by different factors."""
        left, right = self.of(one), self.of(other)
        return left is not None and right is not None and _scaling(left) != _scaling(right)

    def decodes(self, steps: int, adapted: bool = True) -> bool:
        """Whether a row generates so many tokens after its first, with an adapter or whatever it is."""
        if isinstance(self.spec, DecodeLogprobs):
            return self.spec.new_tokens > steps and (self.spec.adapter is not None or not adapted)
        rows = (row for batch in self.batches for row in batch.rows)
        return any(row.new > steps and (row.content is not None or not adapted) for row in rows)


def _scaling(shape: AdapterShape) -> float:
    return shape.alpha / shape.rank


def _alone(question: _Question) -> bool:
    """Prompts of an adapter, each in a batch of its own."""
    spec = question.spec
    return isinstance(spec, PromptLogprobs | GivenPrompt | CacheReuse) and spec.adapter is not None


def _any_prompt(question: _Question) -> bool:
    return isinstance(question.spec, PromptLogprobs | GivenPrompt | CacheReuse)


def _long_prompt(question: _Question) -> bool:
    spec = question.spec
    return isinstance(spec, PromptLogprobs) and spec.adapter is not None and max(spec.prompt_lengths) > _MANY_TOKENS


def _ends_differ(batch: AskedBatch) -> bool:
    return len(batch.rows) > 1 and batch.rows[-1].content != batch.rows[-2].content


def _first_decodes_beside_another(batch: AskedBatch) -> bool:
    first, *others = batch.rows
    return first.new > 1 and any(row.new > 1 and row.content != first.content for row in others)


def _prompt_of_all(question: _Question) -> bool:
    """One prompt under two adapters and the base model, with nothing else in the cache's key that tells the adapters apart.

    A conversation has a key of its own in SGLang, and not every SGLang knows a salt.
    """
    spec = question.spec
    return isinstance(spec, CachedIdentities) and spec.carried not in ("conversation", "cache-salt")


_SEEN: Mapping[str, Callable[[_Question], bool]] = {
    "batch-slot-zero": lambda q: _long_prompt(q) or q.any(lambda batch: mixed(batch) and batch.tokens > _MANY_TOKENS),
    "batch-first-row-for-all": lambda q: q.any(lambda batch: mixed(batch) and batch.tokens > _MANY_TOKENS),
    "batch-rows-permuted": lambda q: q.any(mixed),
    "batch-last-two-exchanged": lambda q: q.any(_ends_differ),
    "batch-adapters-of-previous": lambda q: after_another(q.batches),
    "batch-third-adapter-skipped": lambda q: q.any(lambda batch: len(batch.identities - {None}) > 2),
    "batch-base-adapted": lambda q: q.any(lambda batch: None in batch.identities and mixed(batch)),
    "batch-scaling-of-first": lambda q: q.any(lambda batch: q.differ(batch, _scaling)),
    "batch-smallest-rank": lambda q: q.any(lambda batch: q.differ(batch, lambda shape: shape.rank)),
    "batch-rows-beyond-eight": lambda q: q.any(lambda batch: any(row.content for row in batch.rows[_MANY_ROWS:])),
    "batch-scaling": lambda q: _alone(q) or q.decodes(1) or any(batch.contents for batch in q.batches),
    "decode-without-adapter": lambda q: q.decodes(1),
    "decode-error-grows": lambda q: q.decodes(_MANY_STEPS - 1),
    "decode-first-row-for-all": lambda q: q.any(_first_decodes_beside_another),
    "decode-positions-off-by-one": lambda q: q.decodes(_MANY_STEPS - 1, adapted=False),
    "load-slot-not-rewritten": lambda q: crowded(q.batches, bool),
    "load-missing-not-zeroed": lambda q: in_one_slot(q.batches, q.wider),
    "load-last-layer-lost": lambda q: crowded(q.batches, q.layered),
    "load-first-request-old": lambda q: crowded(q.batches, bool),
    "load-scaled-twice": lambda q: comes_back(q.batches, q.scaled),
    "load-scaled-again-by-name": lambda q: loaded_again(q.batches, lambda _, later: q.scaled(later)),
    "load-weights-by-name": lambda q: loaded_again(q.batches, lambda one, later: one != later),
    "load-scaling-by-name": lambda q: loaded_again(q.batches, q.other_scaling),
    "evict-believed-resident": lambda q: comes_back(q.batches, bool),
    "cache-key-without-adapter": _prompt_of_all,
    "cache-key-adapter-or-not": _prompt_of_all,
    "positions-late-off-by-one": lambda q: isinstance(q.spec, PromptLogprobs) and max(q.spec.prompt_lengths) > 129,
    "logits-temperature": _any_prompt,
}


def engine_must_see(fault: str, case: Case) -> bool:
    """Whether a case must be red under a fault: its inputs cannot hide it."""
    return fault in _SEEN and _SEEN[fault](_question(case))


def _question(case: Case) -> _Question:
    model = MODELS.get(case.id.split("/")[1].partition("+")[0])
    shapes = {} if model is None else {shape.name: shape for shape in model.all_adapters}
    return _Question(case.spec, asked(case.spec), shapes)
