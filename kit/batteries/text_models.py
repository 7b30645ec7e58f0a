"""multi-lora on real models: upstream's text tests, with upstream's prompts, settings and limits."""

import random
from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from kit.asset import Asset, load_assets
from kit.batteries.lora_models import pinned
from kit.batteries.planned import Planned
from kit.batteries.texts import BATCHES, NEW_TOKENS
from kit.check_spec import TextBatch, UpstreamSplitting, UpstreamTexts
from kit.plan import Case, PinnedTextsSession, Session
from kit.profile import Profile
from kit.text_model import TextModel, find_text_model, load_text_models

ADAPTERS = ("adapter-0", "adapter-1")
PROMPTS = 6
"""Length of SGLang's TEST_MULTIPLE_BATCH_PROMPTS, of which upstream draws with this seed."""
SEED = 42
SPLIT_BATCHES = (*BATCHES[:4], ("adapter-0", "adapter-1", "adapter-0"), BATCHES[4])
SPLIT_SLOTS = 2
SPLIT_NEW_TOKENS = 64
_UPSTREAM: dict[str, JsonValue] = {
    "attention_backend": "torch_native",
    "lora_backend": "csgmv",
    "disable_cuda_graph": True,
    "disable_radix_cache": True,
    "sleep_on_idle": True,
    "mem_fraction_static": 0.65,
    "tp_size": 1,
}
"""Of run_lora_multiple_batch_on_model_cases, and defaults of SRTRunner where they are not the engine's."""


def cases(profile: Profile) -> Iterator[Planned]:
    """``multi-lora/<model>/<base or adapter>-text`` and ``…/batch-splitting`` of the models that the profile lists."""
    settings = profile.real_models
    models, assets = load_text_models(), load_assets()
    for name in settings.texts if settings else ():
        yield from _of(profile, find_text_model(name, models), assets)


def further_cases(profile: Profile) -> Iterator[Planned]:
    """The same of every other model: run only where they are asked for by name."""
    own = profile.real_models.texts if profile.real_models else ()
    assets = load_assets()
    for model in load_text_models().values():
        if model.name not in own:
            yield from _of(profile, model, assets)


def text_batches() -> tuple[TextBatch, ...]:
    """Upstream's five batches; each row's prompt is drawn as upstream draws it, row by row."""
    draw = random.Random(SEED)
    return tuple(
        TextBatch(identities=batch, prompts=tuple(draw.choice(range(PROMPTS)) for _ in batch)) for batch in BATCHES
    )


def split_batches() -> tuple[TextBatch, ...]:
    """Upstream's six batches, the first prompt in every row."""
    return tuple(TextBatch(identities=batch, prompts=(0,) * len(batch)) for batch in SPLIT_BATCHES)


def _of(profile: Profile, model: TextModel, assets: dict[str, Asset]) -> Iterator[Planned]:
    skip = None
    if profile.real_models is None:
        skip = f"profile {profile.name} does not say how real models are served (key 'real_models')"
    whole, split = (
        _session(profile, model, assets, name, slots)
        for name, slots in (("texts", len(ADAPTERS) + 1), ("splitting", SPLIT_SLOTS))
    )
    differing = tuple(_differing(profile))
    for identity, own in zip((None, *ADAPTERS), (model.base, *model.adapters), strict=True):
        spec = UpstreamTexts(
            identity=identity,
            batches=text_batches(),
            new_tokens=NEW_TOKENS,
            rouge_l=own.rouge_l,
            prefill=own.prefill,
            group=model.group,
            differing=differing,
        )
        case_id = f"multi-lora/{model.name}/{identity or 'base'}-text"
        yield Planned(whole, Case(id=case_id, session=whole.id, spec=spec, skip=skip))
    splitting = UpstreamSplitting(batches=split_batches(), new_tokens=SPLIT_NEW_TOKENS, differing=differing)
    case_id = f"multi-lora/{model.name}/batch-splitting"
    yield Planned(split, Case(id=case_id, session=split.id, spec=splitting, skip=skip))


def _session(profile: Profile, model: TextModel, assets: dict[str, Asset], name: str, slots: int) -> Session:
    settings = profile.real_models
    own = _own_arguments(profile)
    engine = {**_UPSTREAM, "max_loras_per_batch": slots, **own}
    if model.max_loaded_loras is not None:
        engine["max_loaded_loras"] = model.max_loaded_loras
    dtype = engine.pop("dtype", "float16")
    limits = settings or profile.time
    folders: Sequence[str] = [adapter.asset for adapter in model.adapters]
    return Session(
        id=f"sglang-{model.name}-{name}",
        spec=PinnedTextsSession.model_validate(
            {
                "model": pinned(model.model, assets),
                "adapters": {served: pinned(asset, assets) for served, asset in zip(ADAPTERS, folders, strict=True)},
                "dtype": dtype,
                "engine": engine,
                "environment": settings.environment if settings else {},
                "stand_ins": profile.stand_ins,
            }
        ),
        start_seconds=limits.session_start.total_seconds(),
        case_seconds=limits.case.total_seconds(),
        gpus=1,
        alone=True,
    )


def _own_arguments(profile: Profile) -> dict[str, JsonValue]:
    return profile.real_models.arguments if profile.real_models else {}


def _differing(profile: Profile) -> Iterator[str]:
    """What the profile sets beside the device."""
    upstream = {**_UPSTREAM, "dtype": "float16"}
    for name, value in _own_arguments(profile).items():
        if name != "device" and value != upstream.get(name):
            yield f"{name} {value}" + (f" instead of {upstream[name]}" if name in upstream else "")
