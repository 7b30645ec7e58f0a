"""Adapter files, field by field and damage by damage: honoured or refused with a clear error, and nobody else is hurt."""

from collections.abc import Iterator

from kit.batteries.planned import Planned
from kit.batteries.sessions import sglang
from kit.check_spec import AdapterFile
from kit.plan import Case, Session, SGLangSession
from kit.profile import Profile
from kit.synthetic.adapter_variants import VARIANTS
from kit.synthetic.catalogue import TINY_QWEN3

PROMPT_LENGTHS = (17, 33)
SEED = 19
MAX_RANK = 16
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def cases(profile: Profile) -> Iterator[Planned]:
    """``lora-logprob/<model>/adapter-file-<variant>``, in a session that loads adapters while it serves."""
    session = _session(profile)
    sound, neighbour = TINY_QWEN3.adapters
    for variant in VARIANTS:
        spec = AdapterFile(
            variant=variant, adapter=sound.name, neighbour=neighbour.name, prompt_lengths=PROMPT_LENGTHS, seed=SEED
        )
        case_id = f"lora-logprob/{TINY_QWEN3.name}/adapter-file-{variant}"
        yield Planned(session, Case(id=case_id, session=session.id, spec=spec))


def _session(profile: Profile) -> Session:
    """A case may begin with a start of the engine, where the one before it died of its file."""
    served = sglang(profile, TINY_QWEN3, [adapter.name for adapter in TINY_QWEN3.adapters])
    assert isinstance(served.spec, SGLangSession)
    engine = {**served.spec.engine, "max_lora_rank": MAX_RANK, "lora_target_modules": [*TARGETS]}
    return served.model_copy(
        update={
            "id": f"{served.id}-adapter-files",
            "spec": served.spec.model_copy(update={"engine": engine}),
            "case_seconds": served.case_seconds + served.start_seconds,
        }
    )
