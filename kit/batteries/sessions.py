"""The sessions that batteries ask for. Batteries that ask for the same one share it."""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pydantic import JsonValue

from kit.plan import KernelLibrary, KernelSession, Session, SGLangSession
from kit.profile import Profile
from kit.synthetic.catalogue import ModelShape


def sglang(
    profile: Profile,
    model: ModelShape,
    adapters: Sequence[str] | None = None,
    variant: str = "",
    further: Mapping[str, JsonValue] = MappingProxyType({}),
) -> Session:
    """An engine of this profile on a synthetic model.

    Args:
        adapters: names of those that are loaded; None means all that need no engine of their own.
        variant: what the session is called after; where the profile has an engine variant of this name, its settings count.
            Empty means the settings as they stand.
        further: arguments that the battery itself asks for, whatever the profile says.
    """
    engine = profile.engine
    changes = [change for change in (engine.models.get(model.name), engine.variants.get(variant)) if change]
    dtypes = [change.dtype for change in changes if change.dtype]
    arguments = {**engine.arguments, **{k: v for change in changes for k, v in change.arguments.items()}, **further}
    gpus = max((change.gpus for change in changes), default=1)
    if gpus > 1:
        arguments["tp_size"] = gpus
    return Session(
        id="-".join(filter(None, ("sglang", model.name, variant))),
        spec=SGLangSession(
            model=model.name,
            adapters=tuple(plain_adapters(model) if adapters is None else adapters),
            dtype=dtypes[-1] if dtypes else engine.dtype,
            engine=arguments,
            environment=dict(ChainMap(*(change.environment for change in reversed(changes)), engine.environment)),
            stand_ins=profile.stand_ins,
        ),
        start_seconds=profile.time.session_start.total_seconds(),
        case_seconds=profile.time.case.total_seconds(),
        gpus=gpus,
    )


OF_EXPERTS = {
    "expert-lora": ("experts", "experts-joint", "everything"),
    "shared-outer-expert-lora": ("shared-outer", "shared-outer-32"),
}
"""Adapters of experts need an engine that is started for them: variant and adapters."""


def plain_adapters(model: ModelShape) -> tuple[str, ...]:
    """The adapters of a model that need no engine of their own."""
    special = {name for names in OF_EXPERTS.values() for name in names} if model.experts else set()
    return tuple(adapter.name for adapter in model.all_adapters if adapter.name not in special)


def kernels(profile: Profile, library: KernelLibrary) -> Session:
    """The attention kernels of one library, as this profile runs them."""
    return Session(
        id=f"kernels-{library}",
        spec=KernelSession(
            library=library,
            interpreted=profile.kernels.interpreted,
            environment=profile.kernels.environment,
            stand_ins=profile.stand_ins,
        ),
        start_seconds=profile.time.session_start.total_seconds(),
        case_seconds=profile.time.case.total_seconds(),
    )
