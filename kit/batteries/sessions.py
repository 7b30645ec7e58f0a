"""The sessions that batteries ask for. Batteries that ask for the same one share it."""

from typing import Literal

from kit.plan import KernelSession, Session, SGLangSession
from kit.profile import Profile
from kit.synthetic.catalogue import ModelShape


def sglang(profile: Profile, model: ModelShape) -> Session:
    """An engine of this profile on a synthetic model, with all its adapters."""
    return Session(
        id=f"sglang-{model.name}",
        spec=SGLangSession(
            model=model.name,
            adapters=tuple(adapter.name for adapter in model.adapters),
            dtype=profile.engine.dtype,
            engine=profile.engine.arguments,
            environment=profile.engine.environment,
            stand_ins=profile.stand_ins,
        ),
        start_seconds=profile.time.session_start.total_seconds(),
        case_seconds=profile.time.case.total_seconds(),
    )


def kernels(profile: Profile, library: Literal["triton"]) -> Session:
    """The attention kernels of one library, as this profile runs them."""
    return Session(
        id=f"kernels-{library}",
        spec=KernelSession(
            library=library,
            dtype=profile.kernels.dtype,
            interpreted=profile.kernels.interpreted,
            environment=profile.kernels.environment,
            stand_ins=profile.stand_ins,
        ),
        start_seconds=profile.time.session_start.total_seconds(),
        case_seconds=profile.time.case.total_seconds(),
    )
