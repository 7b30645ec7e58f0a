"""multi-lora: in a batch of several identities every row is what it is alone, and what the oracle says."""

from collections.abc import Iterator

from kit.batteries import texts
from kit.batteries.planned import Planned
from kit.batteries.sessions import sglang
from kit.check_spec import MixedBatchRow
from kit.plan import Case, Session
from kit.profile import Profile
from kit.synthetic.catalogue import TINY_QWEN3, ModelShape

FEW_SLOTS = "few-slots"
"""An engine with fewer slots than adapters, so that batches split and adapters are evicted; the base model takes a slot too."""
SLOTS = 3

COMPOSITION = ("adapter-0", None, "adapter-1")
PROMPT_LENGTHS = (65, 64, 97)
SEED = 11


def few_slots(profile: Profile, model: ModelShape) -> Session:
    """`SLOTS` slots for all adapters of a model that need no engine of their own."""
    return sglang(profile, model, variant=FEW_SLOTS, further={"max_loras_per_batch": SLOTS})


def cases(profile: Profile) -> Iterator[Planned]:
    """``multi-lora/<model>/mixed-row-<row>-<base or adapter>``."""
    model = TINY_QWEN3
    session = sglang(profile, model)
    for row, identity in enumerate(COMPOSITION):
        spec = MixedBatchRow(composition=COMPOSITION, row=row, prompt_lengths=PROMPT_LENGTHS, seed=SEED)
        case_id = f"multi-lora/{model.name}/mixed-row-{row}-{identity or 'base'}"
        yield Planned(session, Case(id=case_id, session=session.id, spec=spec))
    yield from texts.cases(profile)
