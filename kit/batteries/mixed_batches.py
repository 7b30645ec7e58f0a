"""Batches of several identities: every class of composition, every token count at which kernels change, prefill and decode.

What each case asks and why stands in docs/multi-lora.md.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from kit.batteries.lora_logprob import long_text
from kit.batteries.planned import Planned
from kit.batteries.sessions import plain_adapters, sglang
from kit.check_spec import BatchInvariance, CheckSpec, MixedBatch, MixedBatches
from kit.plan import Case, Session
from kit.profile import MixedBatchSelection, Profile
from kit.synthetic.catalogue import MODELS, ModelShape
from kit.synthetic.compositions import NAMED, Composition, every_class, named, parts, random, shuffled

ROWS = 16
LENGTHS: Final = (7, 3, 12, 1, 5, 17, 2, 9, 4, 16, 6, 11, 2, 8, 15, 3)
"""Prompt tokens by row: the same in every case, so that rows of one place and identity share their oracle."""
SMALL = 4
"""Up to this many rows, every class there is."""
THRESHOLDS: Final = (1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257)
"""Tokens on both sides of what kernels choose their blocks by."""
SHRINKING: Final = (16, 1, 2, 3, 16, 1)
DECODED_ROWS: Final = (1, 2, 15, 16, 17, 63, 64)
"""In decode a row is a token; an engine of kit runs 64 rows at once."""
INVARIANCE_SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
MOST_SHARING = 6
TEXT: Final = "decode-text"
"""The case of upstream's first batch of texts, base model and two adapters, judged by logprobs; a self-test asks it of every fault."""
PROMPTS_OF_TEXTS: Final = (17, 64, 33)
NEW_IN_TEXTS = 32
SEED = 11

KEPT_OUT: Final = frozenset({"rslora"})
"""Adapters that SGLang serves wrongly wherever they are: finding 0032. One case of their own has them."""

HALF_A_HEAD: Final = ("embedding", "lm-head")
"""Adapters on one of embedding and output head: a slot keeps what it had on the other, finding 0050. One case of their own too."""

Aspects = Iterator[tuple[str, CheckSpec]]


def cases(profile: Profile, few_slots: Session, slots: int) -> Iterator[Planned]:
    """``multi-lora/<model>/<aspect>``; the same on an engine with `slots` slots, fewer than adapters, where the profile wants all."""
    for model in MODELS.values():
        wanted = selection(profile, model)
        yield from _named(model.name, sglang(profile, model), SELECTIONS[wanted](profile, model))
        if wanted == "full" and few_slots.spec.kind == "sglang" and few_slots.spec.model == model.name:
            yield from _named(
                f"{model.name}+{few_slots.id.removeprefix(f'sglang-{model.name}-')}", few_slots, splitting(model, slots)
            )


def selection(profile: Profile, model: ModelShape) -> MixedBatchSelection:
    """How many of these cases a model gets."""
    own = profile.engine.models.get(model.name)
    return (own.mixed_batches if own else None) or profile.engine.mixed_batches


def in_full(profile: Profile, model: ModelShape) -> Aspects:
    """All cases of the engine as it stands."""
    return chain(
        few(profile, model),
        classes(model),
        sizes(model),
        token_counts(model),
        decode(profile, model),
        others(profile, model),
    )


def selected(profile: Profile, model: ModelShape) -> Aspects:
    """One case of each kind, for a model whose engine differs from another's in little that batches depend on."""
    chosen = {
        "class-all-different",
        "class-odd-in-the-middle",
        "shrinking",
        "tokens-64",
        "tokens-65",
        "decode-shrinking",
    }
    return ((aspect, spec) for aspect, spec in in_full(profile, model) if aspect in chosen | {"few-rows"})


def few(profile: Profile, model: ModelShape) -> Aspects:
    """One small batch, for an engine that takes seconds for it."""
    a, b = adapters_of(model)[:2]
    yield "few-rows", mixed([prefill((a, None, b, a))])


SELECTIONS: Final[dict[MixedBatchSelection, Callable[[Profile, ModelShape], Aspects]]] = {
    "full": in_full,
    "selection": selected,
    "few": few,
}


def classes(model: ModelShape) -> Aspects:
    """Every class of batches of 1 to 4 rows, and the named classes of 16."""
    adapters = adapters_of(model)
    for rows in range(1, SMALL + 1):
        yield f"every-class-of-{rows}", mixed([prefill(c) for c in every_class(rows, adapters, SEED)])
    for name in NAMED:
        yield f"class-{name}", mixed([prefill(named(name, ROWS, adapters, SEED))])


def sizes(model: ModelShape) -> Aspects:
    """Every size, and sizes that shrink: what a large batch left must not be read by a small one."""
    adapters = adapters_of(model)
    yield "every-size", mixed([prefill(random(rows, adapters, SEED)) for rows in range(1, ROWS + 1)])
    yield "shrinking", shrinking(adapters)


def token_counts(model: ModelShape) -> Aspects:
    """For every threshold a batch of so many tokens in all, and a row of so many between short ones."""
    adapters = adapters_of(model)
    for count in THRESHOLDS:
        rows = min(count, MOST_SHARING)
        whole = _batch(random(rows, adapters, SEED + count), parts(count, rows, f"{SEED}"))
        one = _batch(named("round-robin", 4, adapters, SEED), (LENGTHS[0], LENGTHS[1], count, LENGTHS[5]))
        other = _batch(named("round-robin", 4, adapters, SEED)[::-1], (LENGTHS[0], count, LENGTHS[2], LENGTHS[5]))
        yield f"tokens-{count}", mixed([whole, one, other])


def decode(profile: Profile, model: ModelShape) -> Aspects:
    """Rows that generate together: many rows, rows that end one by one, long texts."""
    adapters = adapters_of(model)
    yield "decode-rows", mixed([generating(model, rows, adapters) for rows in DECODED_ROWS])
    ends = shuffled([f"{count:02}" for count in range(1, ROWS + 1)], f"ends/{SEED}")
    ending = _batch(random(ROWS, adapters, SEED), LENGTHS, tuple(map(int, ends)))
    ending = ending.model_copy(update={"prompt_lengths": tuple(min(n, 9) for n in LENGTHS)})
    yield "decode-shrinking", mixed([ending, *(generating(model, rows, adapters) for rows in (1, 2, 3))])
    identities, lengths = ("rank-64", None, "rank-4", "adapter-0", "rank-64"), (5, 9, 1, 17, 12)
    new = tuple(within_window(model, length, long_text(profile, model)) for length in lengths)
    yield "decode-long", mixed([_batch(identities, lengths, new)], alone="as-prompt")
    if model.window is None:
        rows = _batch((None, *adapters_of(model)[:2]), PROMPTS_OF_TEXTS, (NEW_IN_TEXTS,) * 3)
        yield TEXT, mixed([rows], alone="as-prompt")


def others(profile: Profile, model: ModelShape) -> Aspects:
    """Batch invariance; and an adapter that is served wrongly, beside others that must not be."""
    yield "batch-invariance", invariance(profile, model)
    yield "rslora-among-others", mixed([prefill(("rslora", "adapter-0", "rslora", None, "rank-64"))])


def splitting(model: ModelShape, slots: int) -> Aspects:
    """More identities than slots: the engine must split what it is sent, and load adapters in between."""
    return ((aspect, spec.model_copy(update={"slots": slots})) for aspect, spec in _splitting(model))


def _splitting(model: ModelShape) -> Aspects:
    adapters = [name for name in adapters_of(model) if name not in HALF_A_HEAD]
    for name in ("all-different", "round-robin"):
        batch = prefill(named(name, ROWS, adapters, SEED))
        yield f"class-{name}", mixed([batch, batch.model_copy(update={"new_tokens": (3,) * ROWS})])
    yield "shrinking", shrinking(adapters)
    yield "decode-rows", mixed([generating(model, rows, adapters) for rows in (17, 3, 16)])
    yield "half-a-head", mixed([prefill(composition) for composition in half_a_head()])


def half_a_head() -> Iterator[Composition]:
    """Every slot is cleared, then has an embedding or an output head, then one gets an adapter that has the other alone."""
    for half, other in (HALF_A_HEAD, HALF_A_HEAD[::-1]):
        yield "adapter-0", "adapter-1", "rank-4"
        yield other, "head", "everything"
        yield half, None, "adapter-0"


def invariance(profile: Profile, model: ModelShape) -> BatchInvariance:
    """One row alone and before up to 63 others, in prefill and decode; judged bit by bit in SGLang's deterministic mode."""
    adapters = adapters_of(model)
    length = 33 if model.window is None else model.window // 2
    batches = []
    for rows in INVARIANCE_SIZES:
        rest = generating(model, rows, adapters)
        first = (("adapter-1", *rest.composition[1:]), (length, *rest.prompt_lengths[1:]), (8, *rest.new_tokens[1:]))
        batches.append(_batch(*first))
    exact = sglang(profile, model).spec
    deterministic = exact.kind == "sglang" and exact.engine.get("enable_deterministic_inference") is True
    return BatchInvariance(batches=tuple(batches), exact=deterministic, seed=SEED)


def shrinking(adapters: Sequence[str]) -> MixedBatches:
    """Large batches, and small ones after them."""
    return mixed([prefill(random(rows, adapters, SEED)) for rows in SHRINKING])


def generating(model: ModelShape, rows: int, adapters: Sequence[str]) -> MixedBatch:
    """So many rows that go on together, of short prompts after a first one as long as the largest batch has rows.

    That row calibrates: torch sums a product of few tokens more exactly than one of many, and the peer is asked row by row.
    """
    identities = random(max(DECODED_ROWS), adapters, SEED)[:rows]
    new = 3
    first = max(DECODED_ROWS) + 1 if model.window is None else model.window - new
    return _batch(identities, tuple(1 + row % 5 if row else first for row in range(rows)), (new,) * rows)


def prefill(composition: Composition) -> MixedBatch:
    """Prompts, and one token that follows from them: so that a prompt of one token is judged too."""
    return _batch(composition, LENGTHS[: len(composition)])


def mixed(batches: Sequence[MixedBatch], alone: str = "same-request") -> MixedBatches:
    """A case of these batches."""
    return MixedBatches.model_validate({"batches": tuple(batches), "alone": alone, "seed": SEED})


def adapters_of(model: ModelShape) -> tuple[str, ...]:
    """The adapters that rows may have: of ranks 4 to 64, on all kinds of modules."""
    return tuple(name for name in plain_adapters(model) if name not in KEPT_OUT)


def within_window(model: ModelShape, prompt: int, new_tokens: int) -> int:
    """How many tokens follow a prompt; no text leaves the window of a model that has one: finding 0011."""
    return new_tokens if model.window is None else min(new_tokens, model.window - prompt)


def _batch(composition: Composition, lengths: tuple[int, ...], new_tokens: tuple[int, ...] | None = None) -> MixedBatch:
    new = (1,) * len(composition) if new_tokens is None else new_tokens
    return MixedBatch(composition=composition, prompt_lengths=lengths, new_tokens=new)


def _named(subject: str, session: Session, aspects: Aspects) -> Iterator[Planned]:
    for aspect, spec in aspects:
        yield Planned(session, Case(id=f"multi-lora/{subject}/{aspect}", session=session.id, spec=spec))
