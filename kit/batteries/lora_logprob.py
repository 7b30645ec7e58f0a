"""lora-logprob: base model and adapters give the oracle's logprobs, however they are asked and however the engine was started."""

from collections.abc import Iterator, Sequence

from kit.batteries import adapter_files
from kit.batteries.planned import Planned
from kit.batteries.sessions import OF_EXPERTS, plain_adapters, sglang
from kit.batteries.variants import variants_of
from kit.check_spec import CacheReuse, CheckSpec, DecodeLogprobs, GivenPrompt, PromptLogprobs, Repeatability
from kit.plan import Case, Session
from kit.profile import Profile
from kit.synthetic.catalogue import MODELS, TINY_QWEN3, ModelShape

PROMPT_LENGTHS = (1, 2, 16, 17, 63, 64, 65, 129, 200)
"""Below, at and one beyond powers of two, where block sizes of kernels end; a token alone has nothing to look back on."""
VARIANT_LENGTHS = (17, 64, 65, 129)
VARIANT_NEW_TOKENS = 24
BEYOND_WINDOW = 33
"""Tokens of a prompt after which every further one is beyond the window of tiny-gpt-oss."""
REPETITIONS = 20
SEED = 7

ADAPTERS = ("adapter-0", "adapter-1")
"""What every model has, and what most variants load."""
WHOLE = ("tensor-parallel",)
"""Variants that are asked as much as the engine as it stands: what they change is in every module."""

Aspects = Iterator[tuple[str, CheckSpec]]


def cases(profile: Profile) -> Iterator[Planned]:
    """``lora-logprob/<model>/<aspect>``, and ``lora-logprob/<model>+<variant>/<aspect>`` for engines started in another way."""
    for model in MODELS.values():
        adapters = plain_adapters(model)
        aspects = in_full(adapters, long_text(profile, model))
        yield from _named(model.name, sglang(profile, model, adapters), aspects)
    plain = sglang(profile, TINY_QWEN3, plain_adapters(TINY_QWEN3))
    yield from _named(TINY_QWEN3.name, plain, edges(TINY_QWEN3))
    yield from adapter_files.cases(profile)
    for name, variant in variants_of(profile):
        if variant.absent is not None:
            case_id = f"lora-logprob/{TINY_QWEN3.name}+{name}/base"
            case = Case(id=case_id, session=plain.id, spec=prompts(None, VARIANT_LENGTHS), skip=variant.absent)
            yield Planned(plain, case)
            continue
        for model in (MODELS[m] for m in variant.models or MODELS):
            adapters = plain_adapters(model) if name in WHOLE else OF_EXPERTS.get(name, ADAPTERS)
            aspects = _aspects(name, adapters, variant.long_text or long_text(profile, model))
            yield from _named(f"{model.name}+{name}", sglang(profile, model, adapters, name), aspects)


def _aspects(variant: str, adapters: Sequence[str], long: int) -> Aspects:
    if variant in WHOLE:
        return in_full(adapters, long)
    return with_cache() if variant == "radix-cache" else selected(adapters, min(long, VARIANT_NEW_TOKENS))


def in_full(adapters: Sequence[str], long: int) -> Aspects:
    """Prompts of every length for every identity; texts of `long` generated tokens, beyond any window; one request over and over."""
    for identity in (None, *adapters):
        yield identity or "base", prompts(identity, PROMPT_LENGTHS)
    yield "base-decode", decode(None, 1 if long > BEYOND_WINDOW else BEYOND_WINDOW, long)
    yield "adapter-1-decode", decode("adapter-1", BEYOND_WINDOW, long)
    few = max(1, min(4, long // 8))
    yield (
        "adapter-0-repeated",
        Repeatability(adapter="adapter-0", times=REPETITIONS, prompt_length=65, new_tokens=few, seed=SEED),
    )


def edges(model: ModelShape) -> Aspects:
    """The first and the last token ids, reported as they are."""
    top = model.vocabulary - 1
    yield "vocabulary-edges", GivenPrompt(adapter=None, tokens=(0, top, 0, 1, top - 1, top, 1))


def selected(adapters: Sequence[str], new_tokens: int) -> Aspects:
    """A selection, for an engine whose settings differ in one thing."""
    for identity in (None, *adapters):
        yield identity or "base", prompts(identity, VARIANT_LENGTHS)
    last = adapters[-1]
    yield f"{last}-decode", decode(last, BEYOND_WINDOW, new_tokens)


def with_cache() -> Aspects:
    """Prompts that are computed once and found again."""
    for identity in (None, *ADAPTERS):
        aspect = f"{identity or 'base'}-again"
        yield aspect, CacheReuse(adapter=identity, prompt_length=129, new_tokens=8, seed=SEED)
    yield "adapter-1", prompts("adapter-1", VARIANT_LENGTHS)


def long_text(profile: Profile, model: ModelShape) -> int:
    """How many tokens a long text has."""
    own = profile.engine.models.get(model.name)
    return own.long_text if own and own.long_text else profile.engine.long_text


def prompts(adapter: str | None, lengths: tuple[int, ...]) -> PromptLogprobs:
    """Prompts of these lengths, each in a request of its own."""
    return PromptLogprobs(adapter=adapter, prompt_lengths=lengths, seed=SEED)


def decode(adapter: str | None, prompt_length: int, new_tokens: int) -> DecodeLogprobs:
    """A text that the engine goes on with."""
    return DecodeLogprobs(adapter=adapter, prompt_length=prompt_length, new_tokens=new_tokens, seed=SEED)


def _named(subject: str, session: Session, aspects: Aspects) -> Iterator[Planned]:
    for aspect, spec in aspects:
        yield Planned(session, Case(id=f"lora-logprob/{subject}/{aspect}", session=session.id, spec=spec))
