"""multi-lora, texts: greedy text in mixed batches is what plain transformers writes, or triage says why not."""

from collections.abc import Iterator

from kit.batteries.planned import Planned
from kit.batteries.sessions import sglang
from kit.check_spec import BatchText
from kit.plan import Case
from kit.profile import Profile
from kit.synthetic.catalogue import TINY_QWEN3

BATCHES = (
    (None, "adapter-0", "adapter-1"),
    ("adapter-0", None, "adapter-1"),
    ("adapter-0", "adapter-1", None),
    (None, "adapter-1", None),
    (None, None, None),
)
"""Upstream's five (sglang/test/lora_utils.py, before it left out the second and the last two: sglang pull request 23287)."""
PROMPT_LENGTHS = (17, 64, 33)
NEW_TOKENS = 32
SEED = 42


def cases(profile: Profile) -> Iterator[Planned]:
    """``multi-lora/tiny-qwen3/<base or adapter>-text``."""
    model = TINY_QWEN3
    session = sglang(profile, model)
    for identity in (None, "adapter-0", "adapter-1"):
        spec = BatchText(
            identity=identity, batches=BATCHES, prompt_lengths=PROMPT_LENGTHS, new_tokens=NEW_TOKENS, seed=SEED
        )
        case_id = f"multi-lora/{model.name}/{identity or 'base'}-text"
        yield Planned(session, Case(id=case_id, session=session.id, spec=spec))
