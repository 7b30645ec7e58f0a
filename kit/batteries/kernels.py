"""kernels: the attention of every library is right, on upstream's matrix and on the space around it, and so are the LoRA kernels."""

from collections.abc import Iterator

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode
from kit.batteries import expert_lora_cases, lora_kernel_cases
from kit.batteries import upstream_attention as upstream
from kit.batteries.libraries import LIBRARIES, LORA
from kit.batteries.planned import Planned
from kit.batteries.sessions import kernels
from kit.lora_kernel_spec import ExpertLora, LoraKernel
from kit.plan import Case, KernelLibrary
from kit.profile import Profile
from kit.synthetic.attention_space import Kind, generated

KINDS: tuple[Kind, ...] = ("decode", "extend", "unified", "prefill")


def cases(profile: Profile) -> Iterator[Planned]:
    """``kernels/<library>-<kernel>/<sizes>``, and ``kernels/<library>-<kernel>-space/<number>-<sizes>`` beyond upstream's matrix."""
    for library in profile.kernels.libraries:
        if library in LORA:
            yield from _lora(profile, library)
            continue
        for kernel, aspect, spec in (
            *_upstream(profile),
            *_temperatures(),
            *_windows(),
            *_head_tiles(),
            *_capped(profile),
            *_far_slots(profile),
            *_space(profile),
        ):
            if LIBRARIES[library].refuses(spec) is None:
                yield _planned(profile, library, f"{library}-{kernel}/{aspect}", spec)


def _lora(profile: Profile, library: KernelLibrary) -> Iterator[Planned]:
    """``kernels/lora-<backend>-<operation>/<batch>``, and ``-expert-<place>/<batch>``: adapters of mixed rank in one batch."""
    whole = profile.kernels.selection == "full"
    for op, aspect, spec in lora_kernel_cases.cases(whole, profile.kernels.dtype):
        yield _planned(profile, library, f"{library}-{op}/{aspect}", spec)
    asked = expert_lora_cases.ASKED if whole else expert_lora_cases.INTERPRETED[library]
    for place, aspect, experts in expert_lora_cases.cases(asked, profile.kernels.dtype):
        skip = expert_lora_cases.refuses(experts) if profile.kernels.interpreted else None
        yield _planned(profile, library, f"{library}-expert-{place}/{aspect}", experts, skip)


def _upstream(profile: Profile) -> Iterator[tuple[str, str, AttentionSpec]]:
    """Every length and shape of upstream's test; an interpreter does a part of it."""
    whole, dtype = profile.kernels.selection == "full", profile.kernels.dtype
    for shape, length in upstream.DECODE if whole else upstream.DECODE_PART:
        yield "grouped-decode", *upstream.decode(shape, length, dtype)
    for size, length, causal in upstream.PREFILL if whole else upstream.PREFILL_PART:
        yield "prefill", *upstream.prefill(size, length, causal, dtype)
    if whole:
        yield "extend", *upstream.extend(dtype)


def _temperatures() -> Iterator[tuple[str, str, AttentionSpec]]:
    """The one-pass kernel scales scores by position as the two-pass kernel does (docs/findings/0010)."""
    for unified in (False, True):
        spec = Extend(
            query_heads=4,
            kv_heads=2,
            head_dim=16,
            value_dim=16,
            content="large",
            temperature_length=16,
            prefixes=(70, 0),
            lengths=(3, 17),
            unified=unified,
        )
        yield ("unified-extend" if unified else "extend"), "temperature", spec


def _windows() -> Iterator[tuple[str, str, AttentionSpec]]:
    """In decode the engine's own code gives a query the positions that prefill gives it (docs/findings/0011)."""
    for aspect, length in (("within", 6), ("beyond", 20)):
        yield (
            "window-decode",
            aspect,
            GroupedDecode(
                query_heads=4,
                kv_heads=2,
                head_dim=16,
                value_dim=32,
                content="revealing",
                window=7,
                lengths=(length, length + 1),
                engine_window=True,
            ),
        )


def _head_tiles() -> Iterator[tuple[str, str, AttentionSpec]]:
    """Every query head gets the KV head of its own group, also where a block of 16 heads does not divide it (docs/findings/0012)."""
    for group in (16, 24):
        spec = GroupedDecode(
            query_heads=2 * group,
            kv_heads=2,
            head_dim=16,
            value_dim=16,
            lengths=(1,),
            num_kv_splits=(1,),
            dispatch=True,
        )
        yield "head-tiles", f"{group}-heads-a-group", spec


def _capped(profile: Profile) -> Iterator[tuple[str, str, AttentionSpec]]:
    """Scores of which many are beyond the cap, where several positions count: an answer without the cap is another one."""
    sizes = {"query_heads": 4, "kv_heads": 2, "head_dim": 64, "value_dim": 64, "dtype": profile.kernels.dtype}
    large = {**sizes, "content": "large", "logit_cap": 8.0}
    yield "capped", "decode", GroupedDecode.model_validate({**large, "lengths": (9, 40)})
    yield "capped", "extend", Extend.model_validate({**large, "prefixes": (40, 9), "lengths": (3, 5)})


def _far_slots(profile: Profile) -> Iterator[tuple[str, str, AttentionSpec]]:
    """Where a slot begins in the cache is a number of more than 31 bits, and of more than 32: counted in values, as kernels count."""
    heads, size = 8, 128
    shared = {"query_heads": 2 * heads, "kv_heads": heads, "head_dim": size, "value_dim": size}
    for bits in (31, 32) if profile.kernels.selection == "full" else (32,):
        far = {**shared, "dtype": profile.kernels.dtype, "first_slot": 2**bits // (heads * size)}
        yield "far-slots", f"decode-{bits}-bits", GroupedDecode.model_validate({**far, "lengths": (5, 70)})
        lengths = {"prefixes": (40, 7), "lengths": (3, 5)}
        yield "far-slots", f"extend-{bits}-bits", Extend.model_validate({**far, **lengths})


def _space(profile: Profile) -> Iterator[tuple[str, str, AttentionSpec]]:
    """What upstream's matrix leaves out, by pairs (docs/kernels.md)."""
    for kind in KINDS:
        for case in generated(kind, profile.kernels.selection):
            yield f"{kind}-space", case.name, case.spec


def _planned(
    profile: Profile,
    library: KernelLibrary,
    name: str,
    spec: AttentionSpec | LoraKernel | ExpertLora,
    skip: str | None = None,
) -> Planned:
    session = kernels(profile, library)
    skip = LIBRARIES[library].applies(profile) or skip
    return Planned(session, Case(id=f"kernels/{name}", session=session.id, spec=spec, skip=skip))
