"""kernels, without the hardware: they compile for its architecture within its limits, and the MLIR that Wave emits is right."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kit.attention_spec import AttentionSpec, Extend, Prefill
from kit.batteries import upstream_attention as upstream
from kit.batteries.planned import Planned
from kit.offline.budgets import budget_of
from kit.offline_spec import CompileKernel, ExecuteMlir
from kit.plan import Case, OfflineSession, Session
from kit.profile import OfflineSettings, Profile

DTYPE: Final = "float16"
"""Of the upstream test, and all that Wave's attention is written for."""


class Heads(NamedTuple):
    """Query heads, KV heads, and one size for keys and values, as Wave's extend and prefill kernels have it."""

    query: int
    kv: int
    size: int


UPSTREAM_EXTEND = Heads(6, 1, 128)
SQUARE = (Heads(16, 16, 64), Heads(16, 1, 64), Heads(128, 1, 80), Heads(128, 2, 512))
"""The shapes of upstream's decode matrix whose keys and values have one size."""
PREFILL_SIZES = (128, 96)
EXECUTED = (Heads(16, 16, 64), Heads(16, 1, 64))


class Kernel(NamedTuple):
    """Calls about one kernel: those whose MLIR is executed, and the one that is compiled."""

    kind: str
    aspect: str
    executed: tuple[tuple[str, AttentionSpec], ...]
    compiled: AttentionSpec


def cases(profile: Profile) -> Iterator[Planned]:
    """``kernels/offline-<library>-<kernel>-compile/<architecture>-<sizes>`` and ``kernels/offline-wave-<kernel>-execute/…``."""
    if profile.offline is None:
        return
    session = _session(profile, profile.offline)
    for architecture in profile.offline.architectures:
        for kernel in _kernels(profile.offline, architecture):
            if architecture.startswith("gfx"):
                yield from _wave(session, architecture, kernel)
            yield _compiled(session, "triton", architecture, kernel)


def _session(profile: Profile, offline: OfflineSettings) -> Session:
    return Session(
        id="offline",
        spec=OfflineSession(
            architectures=offline.architectures,
            environment={"SGLANG_USE_CPU_ENGINE": "1", "TRITON_INTERPRET": "0"},
            stand_ins=profile.stand_ins,
        ),
        start_seconds=profile.time.session_start.total_seconds(),
        case_seconds=offline.case.total_seconds(),
    )


def _wave(session: Session, architecture: str, kernel: Kernel) -> Iterator[Planned]:
    for aspect, attention in kernel.executed:
        spec = ExecuteMlir(architecture=architecture, attention=attention)
        case_id = f"kernels/offline-wave-{kernel.kind}-execute/{architecture}-{aspect}"
        yield Planned(session, Case(id=case_id, session=session.id, spec=spec))
    yield _compiled(session, "wave", architecture, kernel)


def _compiled(session: Session, library: str, architecture: str, kernel: Kernel) -> Planned:
    case_id = f"kernels/offline-{library}-{kernel.kind}-compile/{architecture}-{kernel.aspect}"
    spec = CompileKernel.model_validate(
        {"library": library, "architecture": architecture, "attention": kernel.compiled, "budget": budget_of(case_id)}
    )
    return Planned(session, Case(id=case_id, session=session.id, spec=spec))


def _kernels(offline: OfflineSettings, architecture: str) -> Iterator[Kernel]:
    if offline.selection == "full":
        yield from (_decode(shape) for shape in upstream.SHAPES)
        yield from (_extend(heads) for heads in (UPSTREAM_EXTEND, *SQUARE))
        yield from (_prefill(size) for size in PREFILL_SIZES)
        yield from (_ragged_prefill(heads) for heads in SQUARE)
        return
    yield _decode(upstream.MULTI_QUERY)
    if architecture == offline.architectures[0]:
        yield _extend(Heads(16, 1, 64))
        yield _ragged_prefill(Heads(16, 1, 64))


def _decode(shape: upstream.Shape) -> Kernel:
    """The upstream matrix; its batch of 32 is compiled only."""
    calls = [upstream.decode(shape, length, DTYPE) for length in upstream.LENGTHS]
    executed = tuple(calls) if shape is not upstream.LARGE_BATCH else ()
    aspect, attention = calls[0]
    return Kernel("decode", aspect.rsplit("-", 1)[0], executed, attention)


def _extend(heads: Heads) -> Kernel:
    """Two requests, one of them without a prefix; all lengths end in the middle of a block."""
    attention = Extend(
        query_heads=heads.query,
        kv_heads=heads.kv,
        head_dim=heads.size,
        value_dim=heads.size,
        dtype=DTYPE,
        prefixes=(70, 0),
        lengths=(33, 17),
    )
    return _square("extend", heads, attention, heads in (UPSTREAM_EXTEND, *EXECUTED))


def _prefill(size: int) -> Kernel:
    """The upstream prompts, without causality, which SGLang's launcher does not hand on to Wave."""
    executed = tuple(upstream.prefill(size, length, False, DTYPE) for length in (128, 256))
    return Kernel("prefill", f"hq4-hkv1-d{size}", executed, executed[-1][1])


def _ragged_prefill(heads: Heads) -> Kernel:
    """Two prompts that end in the middle of a block."""
    attention = Prefill(
        query_heads=heads.query,
        kv_heads=heads.kv,
        head_dim=heads.size,
        value_dim=heads.size,
        dtype=DTYPE,
        lengths=(50, 77),
        causal=False,
    )
    return _square("prefill", heads, attention, heads in EXECUTED)


def _square(kind: str, heads: Heads, attention: AttentionSpec, execute: bool) -> Kernel:
    aspect = f"hq{heads.query}-hkv{heads.kv}-d{heads.size}"
    return Kernel(kind, aspect, ((f"{aspect}-ragged", attention),) if execute else (), attention)
