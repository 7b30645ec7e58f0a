"""Attention-kernel libraries as the planner knows them: where each applies, and what each cannot be asked."""

from collections.abc import Callable
from dataclasses import dataclass

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode
from kit.plan import KernelLibrary
from kit.profile import Profile


@dataclass(frozen=True)
class Library:
    """One library.

    Attributes:
        applies: why it does not apply to a profile; None if it does.
        refuses: why it cannot be asked a case; None if it can.
    """

    applies: Callable[[Profile], str | None]
    refuses: Callable[[AttentionSpec], str | None]


def _everywhere(profile: Profile) -> str | None:
    return None


def _nothing(spec: AttentionSpec) -> str | None:
    return None


def _window_of_triton(spec: AttentionSpec) -> str | None:
    if isinstance(spec, GroupedDecode) and spec.engine_window:
        return "the engine's window is that of SGLang's Triton backend"
    return None


def _plain_torch(spec: AttentionSpec) -> str | None:
    if spec.logit_cap or spec.sinks or spec.temperature_length is not None:
        return "scaled_dot_product_attention has no logit cap, no sinks and no temperature"
    return _one_pass(spec) or _window_of_triton(spec)


def _one_pass(spec: AttentionSpec) -> str | None:
    return "the one-pass kernel is SGLang's" if isinstance(spec, Extend) and spec.unified else None


LIBRARIES: dict[KernelLibrary, Library] = {
    "triton": Library(_everywhere, _nothing),
    "torch": Library(_everywhere, _plain_torch),
    "lora-triton": Library(_everywhere, _nothing),
    "lora-csgmv": Library(_everywhere, _nothing),
}
LORA: tuple[KernelLibrary, ...] = ("lora-triton", "lora-csgmv")
"""Those that are asked LoRA kernels instead of attention."""
