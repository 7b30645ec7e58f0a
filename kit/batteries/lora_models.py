"""lora-logprob on real models: upstream's tests, with upstream's limits, comparable number for number."""

from collections.abc import Iterator

from pydantic import JsonValue, TypeAdapter

from kit.asset import Asset, load_assets
from kit.batteries.planned import Planned
from kit.batteries.sessions import sglang
from kit.check_spec import TargetModules, TrainerLogprobs
from kit.lora_model import LoraModel, find_lora_model, load_lora_models
from kit.names import unknown
from kit.plan import Case, PinnedFolder, PinnedModelSession, Session
from kit.profile import Profile, RealModelSettings
from kit.synthetic.catalogue import TINY_QWEN3


def cases(profile: Profile) -> Iterator[Planned]:
    """``lora-logprob/<model>/trainer-kl`` of the models that the profile lists, and ``lora-logprob/tiny-qwen3/target-modules``."""
    session = sglang(profile, TINY_QWEN3)
    case_id = f"lora-logprob/{TINY_QWEN3.name}/target-modules"
    yield Planned(session, Case(id=case_id, session=session.id, spec=TargetModules()))
    models, assets = load_lora_models(), load_assets()
    for name in listed(profile):
        yield _trainer_kl(profile, find_lora_model(name, models), assets)


def further_cases(profile: Profile) -> Iterator[Planned]:
    """The same of every other model: run only where they are asked for by name."""
    own, assets = listed(profile), load_assets()
    for model in load_lora_models().values():
        if model.name not in own:
            yield _trainer_kl(profile, model, assets)


def listed(profile: Profile) -> tuple[str, ...]:
    """The models that belong to a profile."""
    return profile.real_models.models if profile.real_models else ()


def _trainer_kl(profile: Profile, model: LoraModel, assets: dict[str, Asset]) -> Planned:
    settings = profile.real_models
    arguments = _arguments(model, settings) if settings else model.arguments
    limits = settings or profile.time
    session = Session(
        id=f"sglang-{model.name}",
        spec=PinnedModelSession(
            model=pinned(model.model, assets),
            adapter=pinned(model.adapter, assets),
            engine=arguments,
            environment=settings.environment if settings else {},
            stand_ins=profile.stand_ins,
        ),
        start_seconds=limits.session_start.total_seconds(),
        case_seconds=limits.case.total_seconds(),
        gpus=_devices(arguments),
        alone=True,
    )
    spec = TrainerLogprobs(
        limit=model.limit,
        test=model.test,
        differing=tuple(_differing(model, settings)) if settings else (),
        published=model.published,
    )
    skip = _not_here(profile, model, arguments)
    return Planned(session, Case(id=f"lora-logprob/{model.name}/trainer-kl", session=session.id, spec=spec, skip=skip))


def _arguments(model: LoraModel, settings: RealModelSettings) -> dict[str, JsonValue]:
    return {**settings.attention.get(model.attention, {}), **model.arguments, **settings.arguments}


def _differing(model: LoraModel, settings: RealModelSettings) -> Iterator[str]:
    """What the profile sets beside device and attention, which every vendor has its own of."""
    for name, value in settings.arguments.items():
        upstream = model.arguments.get(name)
        if name != "device" and value != upstream:
            yield f"{name} {value}" + ("" if upstream is None else f" instead of {upstream}")


def pinned(name: str, assets: dict[str, Asset]) -> PinnedFolder:
    """A row of assets.toml, as a session reads it.

    Raises:
        UsageFault: no such row.
    """
    if name not in assets:
        raise unknown("asset", name, assets)
    asset = assets[name]
    return PinnedFolder(name=name, revision=asset.revision, files=asset.files)


def _not_here(profile: Profile, model: LoraModel, arguments: dict[str, JsonValue]) -> str | None:
    """Why this hardware cannot serve a model; None where it can. A CPU counts as one device."""
    settings = profile.real_models
    if settings is None:
        return f"profile {profile.name} does not say how real models are served (key 'real_models')"
    if model.attention != "unpinned" and model.attention not in settings.attention:
        return f"profile {profile.name} has no attention backend for {model.name} (key 'real_models.attention.{model.attention}')"
    if (wanted := _devices(arguments)) > max(profile.gpus, 1):
        return f"needs {wanted} GPUs, profile {profile.name} has {profile.gpus}"
    return None


def _devices(arguments: dict[str, JsonValue]) -> int:
    return TypeAdapter(int).validate_python(arguments["tp_size"])
