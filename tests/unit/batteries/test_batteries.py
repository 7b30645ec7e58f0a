from collections import Counter

import pytest

from kit.attention_spec import Attention, Extend, GroupedDecode, Prefill
from kit.batteries import BATTERIES, multi_lora
from kit.batteries.libraries import LIBRARIES
from kit.check_spec import AllReduce, TrainerLogprobs, UpstreamSplitting, UpstreamTexts
from kit.lora_kernel_spec import LoraBatch
from kit.offline_spec import CompileKernel, ExecuteMlir
from kit.plan import PinnedTextsSession
from kit.profile import load_profiles

PROFILES = load_profiles()

# (B, H_Q, H_KV, D, D_V) and S of SGLang's test_wave_attention_kernels.py, facts of the upstream project.
UPSTREAM_SHAPES = {
    (2, 16, 16, 64, 64),
    (2, 16, 1, 64, 64),
    (2, 128, 1, 80, 80),
    (32, 128, 2, 512, 512),
    (2, 128, 2, 512, 512),
    (2, 128, 1, 576, 512),
}
UPSTREAM_LENGTHS = {5, 100, 128, 500}


def planned(profile: str) -> list:
    return [item for cases in BATTERIES.values() for item in cases(PROFILES[profile])]


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_ids_are_unique_and_begin_with_their_battery(profile: str) -> None:
    ids = [case.id for _, case in planned(profile)]
    assert max(Counter(ids).values()) == 1
    for name, cases in BATTERIES.items():
        assert {case.battery for _, case in cases(PROFILES[profile])} == {name}
        assert all(case.id.count("/") == 2 for _, case in cases(PROFILES[profile]))


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_cases_name_the_session_that_answers_them(profile: str) -> None:
    for session, case in planned(profile):
        assert case.session == session.id
        match case.spec:
            case Attention() | LoraBatch():
                kind = "kernels"
            case AllReduce():
                kind = "collectives"
            case TrainerLogprobs():
                kind = "sglang-pinned"
            case UpstreamTexts() | UpstreamSplitting():
                kind = "sglang-pinned-texts"
            case CompileKernel() | ExecuteMlir():
                kind = "offline"
            case _:
                kind = "sglang"
        assert session.spec.kind == kind


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_both_lora_batteries_share_one_engine(profile: str) -> None:
    sessions = {session.id: session for session, _ in planned(profile)}
    assert all(session == sessions[session.id] for session, _ in planned(profile))
    engines = [{s.id for s, _ in BATTERIES[name](PROFILES[profile])} for name in ("lora-logprob", "multi-lora")]
    real = {session.id for session in sessions.values() if isinstance(session.spec, PinnedTextsSession)}
    assert {name for name in engines[1] - real if not name.endswith(multi_lora.FEW_SLOTS)} <= engines[0]


def test_the_promised_ids_are_there() -> None:
    ids = {case.id for _, case in planned("cpu")}
    assert ids >= {
        "lora-logprob/tiny-qwen3/vocabulary-edges",
        "lora-logprob/tiny-qwen3/base",
        "lora-logprob/tiny-qwen3/adapter-0",
        "lora-logprob/tiny-qwen3/adapter-1",
        "multi-lora/tiny-qwen3/every-class-of-4",
        "multi-lora/tiny-qwen3/class-base-in-the-middle",
        "multi-lora/tiny-qwen3/tokens-257",
        "multi-lora/tiny-qwen3/batch-invariance",
        "multi-lora/tiny-qwen3+few-slots/shrinking",
        "kernels/triton-grouped-decode/b2-hq128-hkv1-d576-dv512-s5",
        "kernels/triton-prefill/d96-s128-causal",
        "kernels/torch-prefill/d128-s128-full",
    }
    assert len(ids) >= 12


def upstream(profile: str) -> list[Attention]:
    specs = [case.spec for _, case in planned(profile) if "/triton-" in case.id and isinstance(case.spec, Attention)]
    return [spec for spec in specs if spec.upstream]


def shapes(profile: str) -> set[tuple[int, ...]]:
    specs = [spec for spec in upstream(profile) if isinstance(spec, GroupedDecode)]
    for spec in specs:
        assert (spec.max_kv_splits, spec.num_kv_splits) == (8, (4,))
        assert len(set(spec.lengths)) == 1
    return {(len(s.lengths), s.query_heads, s.kv_heads, s.head_dim, s.value_dim, s.lengths[0]) for s in specs}


@pytest.mark.parametrize("profile", ["MI355X-4gpu", "B200-4gpu", "H200-1gpu"])
def test_gpus_run_the_whole_upstream_matrix(profile: str) -> None:
    assert shapes(profile) == {(*shape, length) for shape in UPSTREAM_SHAPES for length in UPSTREAM_LENGTHS}
    prefill = {
        (s.query_heads, s.kv_heads, s.head_dim, *s.lengths, s.causal)
        for s in upstream(profile)
        if isinstance(s, Prefill)
    }
    assert prefill == {(4, 1, size, n, causal) for size in (128, 96) for n in (128, 256) for causal in (False, True)}
    (extend,) = [spec for spec in upstream(profile) if isinstance(spec, Extend)]
    assert (len(extend.prefixes), extend.query_heads, extend.kv_heads, extend.head_dim) == (32, 6, 1, 128)
    assert set(extend.lengths) == {1024} and max(extend.prefixes) < 16_384 // 2


@pytest.mark.parametrize("profile", ["MI355X-4gpu", "B200-4gpu", "H200-1gpu"])
def test_gpus_run_500_cases_beyond_it(profile: str) -> None:
    assert sum("/triton-" in case.id and "-space/" in case.id for _, case in planned(profile)) == 500


def test_the_interpreter_runs_a_part_of_the_upstream_matrix() -> None:
    part = shapes("cpu")
    assert part < {(*shape, length) for shape in UPSTREAM_SHAPES for length in UPSTREAM_LENGTHS}
    assert len(part) >= 7
    assert len({sizes[:5] for sizes in part}) >= 3
    assert {sizes[5] for sizes in part} == UPSTREAM_LENGTHS


def test_wave_runs_the_upstream_matrix_on_rocm_and_says_why_not_elsewhere() -> None:
    rocm = [case for _, case in planned("MI355X-4gpu") if "/wave-" in case.id]
    assert sum("/wave-grouped-decode/" in case.id for case in rocm) == 24 and all(case.skip is None for case in rocm)
    assert {case.id.split("/")[2] for case in rocm if "/wave-prefill/" in case.id} == {
        f"d{size}-s{length}-full" for size in (128, 96) for length in (128, 256)
    }
    settings = PROFILES["cpu"].kernels.model_copy(update={"libraries": ("wave",)})
    planned_there = BATTERIES["kernels"](PROFILES["cpu"].model_copy(update={"kernels": settings}))
    elsewhere = [case for _, case in planned_there if case.id.startswith("kernels/wave-")]
    assert elsewhere and all(case.skip and "AMD" in case.skip for case in elsewhere)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_library_is_only_asked_what_it_can_do(profile: str) -> None:
    for session, case in planned(profile):
        if isinstance(case.spec, Attention):
            assert LIBRARIES[session.spec.library].refuses(case.spec) is None
