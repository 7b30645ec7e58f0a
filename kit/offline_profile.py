"""The checks of a hardware profile that need none of its hardware, as a profile of its own.

It has another name, another architecture and another image than the hardware, so that no run of it can be taken for a
qualification of the hardware.
"""

from collections.abc import Collection

from kit.errors import UsageFault
from kit.profile import OfflineSettings, Profile

SUFFIX = "-offline"

_DOES_NOT_PROVE = (
    "None of this ran on {title}: it is no evidence about silicon, drivers, memory, or speed, and no qualification.",
    "Kernels were compiled for {architecture}, and not run: that the compiler ends within the architecture's limits says "
    "nothing about what its code computes.",
    "Wave's MLIR was followed in lockstep: code generation after MLIR, races between waves and hardware rounding are not covered.",
    "Triton kernels ran in its interpreter: compilation, races and hardware rounding are not covered.",
    "No model was served: LoRA, batching and everything else of the engine are not covered.",
)


def offline_profiles(profiles: Collection[Profile]) -> list[Profile]:
    """One of each architecture that kernels can be compiled for; the first profile of it stands for the others."""
    from kit.offline.architectures import ARCHITECTURES

    host = min(
        (profile for profile in profiles if profile.offline is not None), key=lambda each: each.name, default=None
    )
    first = {profile.architecture: profile for profile in reversed(list(profiles))}
    if host is None:
        return []
    return [without_hardware(first[name], host) for name in ARCHITECTURES if name in first]


def without_hardware(profile: Profile, host: Profile) -> Profile:
    """What of `profile` needs no hardware, on the machine that `host` describes, the CPU.

    Raises:
        UsageFault: `profile` is for a CPU itself, or no limits of its architecture are recorded.
    """
    from kit.offline.architectures import ARCHITECTURES

    if profile.gpus == 0:
        raise UsageFault(
            f"profile {profile.name} is for a machine without a GPU itself", "run it without --offline-checks"
        )
    if profile.architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UsageFault(
            f"nothing is compiled for {profile.architecture} without its hardware",
            f"profiles of {known} can be checked",
        )
    assert host.offline is not None, "the CPU's profile has its own offline settings"
    facts = {"title": profile.title, "architecture": profile.architecture}
    settings = {"architectures": (profile.architecture,), "selection": "full", "stands_for": profile.name}
    return host.model_copy(
        update={
            "name": profile.name + SUFFIX,
            "title": f"Without the hardware: {profile.title}",
            "aliases": tuple(alias + SUFFIX for alias in profile.aliases),
            "mandatory": ("kernels",),
            "first": (),
            "waivers": tuple(dict.fromkeys((*(host.waivers or ()), *(profile.waivers or ())))),
            "does_not_prove": tuple(text.format(**facts) for text in _DOES_NOT_PROVE),
            "offline": OfflineSettings.model_validate({**dict(host.offline), **settings}),
            "real_models": None,
            "kernels": host.kernels.model_copy(update={"libraries": ("triton",)}),
        }
    )
