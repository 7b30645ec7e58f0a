"""multi-lora: in a batch of several identities every row is what it is alone, and what the oracle says."""

from collections.abc import Iterator

from kit.batteries.planned import Planned
from kit.batteries.sessions import sglang
from kit.check_spec import MixedBatchRow
from kit.plan import Case
from kit.profile import Profile
from kit.synthetic.catalogue import TINY_QWEN3

COMPOSITION = ("adapter-0", None, "adapter-1")
PROMPT_LENGTHS = (65, 64, 97)
SEED = 11


def cases(profile: Profile) -> Iterator[Planned]:
    """``multi-lora/<model>/mixed-row-<row>-<base or adapter>``."""
    model = TINY_QWEN3
    session = sglang(profile, model)
    for row, identity in enumerate(COMPOSITION):
        spec = MixedBatchRow(composition=COMPOSITION, row=row, prompt_lengths=PROMPT_LENGTHS, seed=SEED)
        case_id = f"multi-lora/{model.name}/mixed-row-{row}-{identity or 'base'}"
        yield Planned(session, Case(id=case_id, session=session.id, spec=spec))
