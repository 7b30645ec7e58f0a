"""Other ways to start an engine, under which the same answers must come. A profile says for each how, or why not."""

from collections.abc import Iterator
from typing import Final

from kit.errors import UsageFault
from kit.names import near_matches
from kit.profile import EngineVariant, Profile

VARIANTS: Final = {
    "bfloat16": "weights and activations in bfloat16",
    "float16": "weights and activations in float16",
    "lora-triton": "LoRA by SGLang's Triton kernels, one segment per request",
    "lora-csgmv": "LoRA by SGLang's chunked segmented kernels",
    "lora-torch-native": "LoRA in plain torch",
    "float16-lora-triton": "float16, with LoRA by SGLang's Triton kernels",
    "no-cuda-graphs": "decode without recorded graphs",
    "chunked-prefill": "prompts computed in chunks of 64 tokens",
    "radix-cache": "prompts found in the cache of earlier requests",
    "tensor-parallel": "every layer spread over several GPUs",
    "expert-lora": "LoRA on each expert of its own",
    "shared-outer-expert-lora": "LoRA on experts that share their outer factors",
}


def variants_of(profile: Profile) -> Iterator[tuple[str, EngineVariant]]:
    """Name and settings of every variant; one that the profile does not name, or has too few GPUs for, is absent and says so.

    Raises:
        UsageFault: the profile names a variant that no battery knows.
    """
    told = profile.engine.variants
    for name in told:
        if name not in VARIANTS:
            hint = near_matches(name, VARIANTS)
            raise UsageFault(f"profile {profile.name}, key 'engine.variants': no battery knows '{name}'", hint)
    for name in VARIANTS:
        variant = told.get(name, EngineVariant(absent="the profile does not say how to start it"))
        if variant.gpus > max(1, profile.gpus):
            variant = EngineVariant(absent=f"it needs {variant.gpus} GPUs, and this profile has {profile.gpus}")
        yield name, variant
