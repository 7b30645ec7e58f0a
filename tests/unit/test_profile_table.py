"""Every profile of kit, row by row, as vendors and the upstream project tell it."""

import re

import pytest

from kit.host.planner import Selection, make_plan
from kit.plan import PinnedModelSession
from kit.profile import find_profile, load_profiles

GIB = 2**30
BACKENDS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend", "lora_backend")
TRITON = ("triton", "triton", "triton", "triton")
FA4 = ("flashinfer", "fa4", "fa4", "triton")
HOPPER = ("triton", None, None, "csgmv")
XPU = ("intel_xpu", None, None, "triton")
CPU = ("torch_native", None, None, "torch_native")

# Architecture, nominal memory of a GPU in 10⁹ byte (vendors' data sheets), partition, image, backends of the synthetic models: upstream's
# own on ROCm, CUDA and XPU (sglang pull request 38791); on Hopper what was measured there.
SKUS = {
    "MI355X": ("gfx950", 288, "SPX/NPS1", "rocm", TRITON, (1, 4, 8)),
    "MI350X": ("gfx950", 288, "SPX/NPS1", "rocm", TRITON, (1, 8)),
    "MI325X": ("gfx942", 256, "SPX/NPS1", "rocm-mi30x", TRITON, (1, 8)),
    "MI300X": ("gfx942", 192, "SPX/NPS1", "rocm-mi30x", TRITON, (1, 8)),
    "B200": ("sm_100", 180, None, "cuda", FA4, (1, 4, 8)),
    "H200": ("sm_90", 141, None, "cuda", HOPPER, (1, 2, 4, 8)),
    "H100": ("sm_90", 80, None, "cuda", HOPPER, (1, 8)),
    "XPU": ("xpu", None, None, "xpu", XPU, (1,)),
}
ROWS = {f"{sku}-{count}gpu": (sku, count) for sku, row in SKUS.items() for count in row[-1]}
# GPUs over which upstream splits a model: test_lora_qwen3_8b_logprob_diff.py and test_lora_gpt_oss_20b_logprob_diff.py.
SPLIT = {"qwen3-8b": 1, "gpt-oss-20b": 4}


def test_the_table_has_every_profile() -> None:
    assert sorted(load_profiles()) == sorted([*ROWS, "cpu", "cpu-4rank"])


@pytest.mark.parametrize("name", ROWS)
def test_a_row(name: str) -> None:
    sku, count = ROWS[name]
    architecture, memory, partition, image, backends, _ = SKUS[sku]
    profile = find_profile(name)
    assert (profile.architecture, profile.gpus, profile.partition, profile.image) == (
        architecture,
        count,
        partition,
        image,
    )
    assert tuple(profile.engine.arguments.get(key) for key in BACKENDS) == backends
    assert profile.mandatory == ("lora-logprob", "multi-lora", "kernels")
    assert bool(profile.missing) == (sku == "XPU")
    assert profile.container.memory >= 64 * GIB * min(count, 4)
    assert (profile.gpu_memory is None) == (memory is None)
    if memory and profile.gpu_memory:
        assert 0.95 * memory * 1e9 < profile.gpu_memory < 1.08 * memory * 1e9, "drivers count in GiB, or in 10⁹ byte"
    one = "One GPU took part: nothing here is evidence about tensor parallelism or the links between GPUs."
    assert (one in profile.does_not_prove) == (count == 1)


@pytest.mark.parametrize("name", ROWS)
def test_upstreams_models_are_split_as_upstream_splits_them(name: str) -> None:
    sku, count = ROWS[name]
    plan = make_plan(find_profile(name), Selection(), "x")
    sessions = {s.id.removeprefix("sglang-"): s for s in plan.sessions if isinstance(s.spec, PinnedModelSession)}
    fitting = {model: gpus for model, gpus in SPLIT.items() if gpus <= count}
    assert {model: session.gpus for model, session in sessions.items()} == fitting
    attention = {"MI": ("triton",) * 3, "XP": ("intel_xpu", None, None)}.get(sku[:2], ("flashinfer", "fa4", "fa4"))
    for session in sessions.values():
        assert isinstance(session.spec, PinnedModelSession)
        engine = session.spec.engine
        assert tuple(engine.get(key) for key in BACKENDS) == (*attention, "triton")
        assert engine["max_lora_rank"] == 32
    assert not [case for case in plan.cases if case.session in {s.id for s in sessions.values()} and case.skip]


@pytest.mark.parametrize("name", ROWS)
def test_the_environment_of_upstreams_models_is_that_of_its_ci(name: str) -> None:
    """scripts/ci/amd/amd_ci_exec.sh; on CUDA upstream sets nothing."""
    told = find_profile(name).real_models
    amd = {"SGLANG_USE_AITER": "1", "SGLANG_ENABLE_ASYNC_ASSERT": "0", "SGLANG_SANITIZE_NAN_LOGITS": "0"}
    archs = {"GPU_ARCHS": "gfx950"} if name.startswith("MI35") else {}
    assert told is not None
    assert told.environment == (amd | archs if name.startswith("MI") else {})


def test_cpu() -> None:
    cpu = find_profile("cpu")
    assert tuple(cpu.engine.arguments.get(key) for key in BACKENDS) == CPU
    assert (cpu.vendor, cpu.gpus, cpu.kernels.interpreted) == ("cpu", 0, True)


def test_models_of_one_architecture_are_told_apart() -> None:
    """No PCI device belongs to two models, and the counts of one model agree."""
    of: dict[str, set[str]] = {}
    for name, (sku, _) in ROWS.items():
        for device in find_profile(name).pci_devices:
            of.setdefault(device, set()).add(sku)
    assert all(len(models) == 1 for models in of.values()), of
    for sku, row in SKUS.items():
        assert len({find_profile(f"{sku}-{count}gpu").pci_devices for count in row[-1]}) == 1


@pytest.mark.parametrize("name", ROWS)
def test_rocm_and_only_rocm_has_upstreams_rouge_limit(name: str) -> None:
    """rouge_l_tolerance is 0.9 without adapter on AMD and 1.0 elsewhere (sglang pull request 38585)."""
    told = [(other.case, other.measurement, other.limit, other.link) for other in find_profile(name).limits]
    rouge = ("multi-lora/llama-2-7b/base-*", "rouge_l", 0.9, "https://github.com/sgl-project/sglang/pull/38585")
    assert told == ([rouge] if name.startswith("MI") else [])


def test_titles_say_what_the_profile_is() -> None:
    counts = {1: "One", 2: "Two", 4: "Four", 8: "Eight"}
    for name, (sku, count) in ROWS.items():
        assert re.match(rf"{counts[count]} .*\b{sku}\b", find_profile(name).title), name
