"""Attention-kernel libraries as the planner knows them: where each applies, and what each cannot be asked."""

from collections.abc import Callable
from dataclasses import dataclass

from kit.attention_spec import AttentionSpec, Cached, Extend, GroupedDecode, Prefill
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
    if isinstance(spec, Cached) and spec.far:
        return "torch gathers keys and values before it is asked"
    if spec.logit_cap or spec.sinks or spec.temperature_length is not None:
        return "scaled_dot_product_attention has no logit cap, no sinks and no temperature"
    return _one_pass(spec) or _window_of_triton(spec)


def _one_pass(spec: AttentionSpec) -> str | None:
    return "the one-pass kernel is SGLang's" if isinstance(spec, Extend) and spec.unified else None


def _rocm(profile: Profile) -> str | None:
    return None if profile.vendor == "amd" else "Wave compiles for AMD GPUs"


def _architecture(wanted: str, library: str) -> Callable[[Profile], str | None]:
    def applies(profile: Profile) -> str | None:
        return None if profile.architecture == wanted else f"{library} is for {wanted}"

    return applies


def _wave(spec: AttentionSpec) -> str | None:
    """What the arguments of SGLang's ``wave_ops`` have no place for."""
    if spec.sinks or spec.window is not None or spec.temperature_length is not None:
        return "Wave's kernels have no sinks, no window and no temperature"
    if spec.dtype != "float16":
        return "Wave's kernels multiply in float16"
    if isinstance(spec, Prefill):
        return "Wave's prefill has no mask" if spec.causal else None
    if spec.page_size > 1 or (isinstance(spec, Extend) and spec.tree_mask):
        return "Wave's kernels have no page size and no custom mask"
    return _one_pass(spec) or _window_of_triton(spec)


def _flash(spec: AttentionSpec) -> str | None:
    """What FlashAttention does not do: see its README, "supported features"."""
    if spec.head_dim > 256 or (spec.value_dim != spec.head_dim and (spec.head_dim, spec.value_dim) != (192, 128)):
        return "FlashAttention takes heads up to 256, and different values only for 192 and 128"
    if spec.temperature_length is not None or (isinstance(spec, Extend) and (spec.tree_mask or spec.page_size > 1)):
        return "FlashAttention has no temperature and no custom mask, and new tokens have pages of their own here"
    if spec.sinks and spec.dtype != "bfloat16":
        return "FlashAttention takes sinks in bfloat16"
    return _one_pass(spec) or _window_of_triton(spec)


def _nvidia(profile: Profile) -> str | None:
    return None if profile.architecture in ("sm_90", "sm_100") else "FlashInfer is for NVIDIA GPUs (sm_90 and sm_100)"


def _flashinfer(spec: AttentionSpec) -> str | None:
    """What SGLang's backend does not ask of FlashInfer, and what would take minutes more to compile."""
    if spec.sinks or spec.temperature_length is not None:
        return "SGLang asks FlashInfer for no sinks and no temperature"
    if spec.value_dim != spec.head_dim or (spec.head_dim, spec.dtype) not in FLASHINFER_SIZES:
        return "FlashInfer is compiled for heads of 128, and of 64 in float16: a size more takes a minute of 16 cores"
    if isinstance(spec, Extend) and spec.window is not None and spec.head_dim != FLASHINFER_WINDOWED:
        return "FlashInfer is compiled with a window for heads of 128 alone"
    return _one_pass(spec) or _window_of_triton(spec)


FLASHINFER_SIZES = {(128, "float16"), (128, "bfloat16"), (64, "float16")}
FLASHINFER_WINDOWED = 128
LIBRARIES: dict[KernelLibrary, Library] = {
    "triton": Library(_everywhere, _nothing),
    "wave": Library(_rocm, _wave),
    "flashinfer": Library(_nvidia, _flashinfer),
    "fa3": Library(_architecture("sm_90", "FlashAttention 3"), _flash),
    "fa4": Library(_architecture("sm_100", "FlashAttention 4"), _flash),
    "torch": Library(_everywhere, _plain_torch),
    "lora-triton": Library(_everywhere, _nothing),
    "lora-csgmv": Library(_everywhere, _nothing),
}
LORA: tuple[KernelLibrary, ...] = ("lora-triton", "lora-csgmv")
"""Those that are asked LoRA kernels instead of attention."""
