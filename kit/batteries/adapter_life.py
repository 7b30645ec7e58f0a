"""multi-lora: what an adapter lives through while others are served, and what caches keep apart."""

from collections.abc import Iterator
from typing import get_args

from kit.batteries.planned import Planned
from kit.batteries.sessions import plain_adapters, sglang
from kit.check_spec import AdapterLife, CachedIdentities, FirstRequests
from kit.plan import Case, Session
from kit.profile import Profile
from kit.synthetic.adapter_programs import PROGRAMS
from kit.synthetic.catalogue import ModelShape
from kit.synthetic.program_names import LAST_POSITIONS, ONE_SLOT, WALK

SEEDS = (1, 2, 3)
OPERATIONS = 100
ALONE_IN_HEAD = ("embedding", "lm-head")
"""Adapters of one module beside the layers: SGLang leaves the other's weights of an earlier tenant in the slot (docs/findings/0050).

So walks are about all others, which have both modules or neither; `ONE_SLOT` is about these too, and about the others once more.
"""
SEED = 23

CACHED_ADAPTERS = ("adapter-0", "adapter-1")
CACHED_PROMPT = 65
CACHE = "radix-cache"


def cases(profile: Profile, model: ModelShape, session: Session, slots: int) -> Iterator[Planned]:
    """``multi-lora/<model>/life-<program>``, ``…/life-first-requests`` and ``multi-lora/<model>+radix-cache/identities-<carried>``.

    Args:
        session: an engine with `slots` slots and all plain adapters of the model.
    """
    adapters = walked(model)

    def life(aspect: str, program: str, names: tuple[str, ...] = adapters, seed: int = 0) -> Planned:
        operations = OPERATIONS if program == WALK else 0
        spec = AdapterLife(program=program, adapters=names, slots=slots, seed=seed, operations=operations)
        return _planned(session, f"multi-lora/{model.name}/life-{aspect}", spec)

    others = tuple(name for name in adapters if name not in ALONE_IN_HEAD)

    for program in PROGRAMS:
        if program not in (WALK, LAST_POSITIONS):
            yield life(program, program)
    first = FirstRequests(adapters=adapters, slots=slots, seed=SEED)
    yield _planned(session, f"multi-lora/{model.name}/life-first-requests", first)
    yield life("one-slot-others", ONE_SLOT, others)
    yield life(LAST_POSITIONS, LAST_POSITIONS, others)
    for seed in SEEDS:
        yield life(f"walk-{seed}", WALK, others, seed)
    yield from _cached(profile, model)


def walked(model: ModelShape) -> tuple[str, ...]:
    """The adapters that programs serve and draw anew: all plain ones, without rsLoRA, which SGLang scales wrongly (docs/findings/0032)."""
    stabilised = {adapter.name for adapter in model.all_adapters if adapter.stabilised}
    return tuple(name for name in plain_adapters(model) if name not in stabilised)


def _cached(profile: Profile, model: ModelShape) -> Iterator[Planned]:
    """In the session that `lora-logprob` has for this variant. Its absence is told there."""
    variant = profile.engine.variants.get(CACHE)
    if variant is None or variant.absent is not None or (variant.models and model.name not in variant.models):
        return
    session = sglang(profile, model, CACHED_ADAPTERS, CACHE)
    for number, carried in enumerate(get_args(CachedIdentities.model_fields["carried"].annotation)):
        spec = CachedIdentities(
            adapters=CACHED_ADAPTERS, carried=carried, prompt_length=CACHED_PROMPT, seed=SEED + 1 + number
        )
        yield _planned(session, f"multi-lora/{model.name}+{CACHE}/identities-{carried}", spec)


def _planned(session: Session, case_id: str, spec: AdapterLife | FirstRequests | CachedIdentities) -> Planned:
    return Planned(session, Case(id=case_id, session=session.id, spec=spec))
