"""multi-lora: in a batch of several identities every row is what it is alone, and what the oracle says."""

from collections.abc import Iterator

from kit.batteries import adapter_life, mixed_batches, texts
from kit.batteries.planned import Planned
from kit.batteries.sessions import sglang
from kit.plan import Session
from kit.profile import Profile
from kit.synthetic.catalogue import TINY_QWEN3, ModelShape

FEW_SLOTS = "few-slots"
"""An engine with fewer slots than adapters, so that batches split and adapters are evicted; the base model takes a slot too."""
SLOTS = 3


def few_slots(profile: Profile, model: ModelShape) -> Session:
    """`SLOTS` slots for all adapters of a model that need no engine of their own."""
    return sglang(profile, model, variant=FEW_SLOTS, further={"max_loras_per_batch": SLOTS})


def cases(profile: Profile) -> Iterator[Planned]:
    """``multi-lora/<model>/<aspect>``."""
    yield from mixed_batches.cases(profile, few_slots(profile, TINY_QWEN3), SLOTS)
    yield from texts.cases(profile)
    yield from adapter_life.cases(profile, TINY_QWEN3, few_slots(profile, TINY_QWEN3), SLOTS)
