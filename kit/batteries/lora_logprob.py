"""lora-logprob: base model and adapters, served alone, give the oracle's logprobs; adapters have their effect."""

from collections.abc import Iterator

from kit.batteries.planned import Planned
from kit.batteries.sessions import sglang
from kit.plan import Case, GivenPrompt, PromptLogprobs
from kit.profile import Profile
from kit.synthetic.catalogue import TINY_QWEN3

PROMPT_LENGTHS = (17, 33, 64, 65, 96)
"""Below, at and one beyond powers of two, where block sizes of kernels end."""
SEED = 7


def cases(profile: Profile) -> Iterator[Planned]:
    """``lora-logprob/<model>/<base or adapter>``, and ``vocabulary-edges``: the first and the last token ids, reported as they are."""
    model = TINY_QWEN3
    session = sglang(profile, model)
    top = model.vocabulary - 1
    edges = GivenPrompt(adapter=None, tokens=(0, top, 0, 1, top - 1, top, 1))
    yield Planned(session, Case(id=f"lora-logprob/{model.name}/vocabulary-edges", session=session.id, spec=edges))
    for adapter in (None, *(adapter.name for adapter in model.adapters)):
        spec = PromptLogprobs(adapter=adapter, prompt_lengths=PROMPT_LENGTHS, seed=SEED)
        yield Planned(session, Case(id=f"lora-logprob/{model.name}/{adapter or 'base'}", session=session.id, spec=spec))
