"""Upstream's LoRA tests on real models: the table, the engines that profiles give them, and when a case is planned."""

from pathlib import Path

import pytest

from kit.asset import load_assets
from kit.batteries import FURTHER
from kit.check_spec import TrainerLogprobs
from kit.errors import UsageFault
from kit.host.planner import Selection, make_plan
from kit.lora_model import load_lora_models
from kit.plan import Case, PinnedModelSession, Plan
from kit.profile import Profile, RealModelSettings, find_profile, load_profiles

FA4 = ("flashinfer", "fa4", "fa4")
LATENT = ("flashinfer", "fa4", "flashinfer")
TRITON = ("triton", "triton", "triton")
UNPINNED = (None, None, None)
BACKENDS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
MOE = {"moe_runner_backend": "triton", "experts_shared_outer_loras": True}
VIRTUAL = {**MOE, "lora_use_virtual_experts": True, "disable_shared_experts_fusion": True}

# Constants of SGLang's test_lora_*_logprob_diff.py: model, data set, rank, GPUs, KL_THRESHOLD, backends on CUDA, further arguments.
UPSTREAM = {
    "qwen3-8b": ("Qwen/Qwen3-8B", "yushengsu/lora-diff-Qwen3-8B", 32, 1, 5e-3, FA4, {}),
    "gpt-oss-20b": ("lmsys/gpt-oss-20b-bf16", "yushengsu/lora-diff-gpt-oss-20b", 32, 4, 5e-3, FA4, MOE),
    "qwen3-30b-a3b-instruct-2507": (
        "Qwen/Qwen3-30B-A3B-Instruct-2507", "yushengsu/lora-diff-Qwen3-30B-A3B-Instruct-2507", 32, 4, 5e-3, FA4, MOE,
    ),
    "qwen3-vl-30b-a3b-instruct": (
        "Qwen/Qwen3-VL-30B-A3B-Instruct", "yushengsu/lora-diff-Qwen3-VL-30B-A3B-Instruct", 32, 4, 5e-3, FA4, MOE,
    ),
    "deepseek-v3.1-base": (
        "deepseek-ai/DeepSeek-V3.1-Base", "yushengsu/lora-diff-DeepSeek-V3.1-Base", 32, 8, 6e-3, LATENT,
        {**MOE, "disable_shared_experts_fusion": True},
    ),
    "kimi-k2.5": (
        "moonshotai/Kimi-K2.5", "yushengsu/lora-diff-Kimi-K2.5", 32, 8, 1.5e-2, LATENT,
        {**MOE, "trust_remote_code": True},
    ),
    "qwen3.5-4b": ("Qwen/Qwen3.5-4B", "opherlie/lora-test-case-Qwen3.5-4B", 64, 1, 4e-3, UNPINNED, {}),
    "qwen3.5-35b-a3b": (
        "Qwen/Qwen3.5-35B-A3B", "opherlie/lora-test-case-Qwen3.5-35B-A3B", 64, 4, 1e-3, UNPINNED,
        {**VIRTUAL, "chunked_prefill_size": 8192, "mem_fraction_static": 0.8},
    ),
    "nemotron-3-super-120b": (
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16",
        "opherlie/lora-test-case-NVIDIA-Nemotron-3-Super-120B-A12B-BF16", 64, 4, 2.5e-3, UNPINNED, VIRTUAL,
    ),
}  # fmt: skip
TWO = ("qwen3-8b", "gpt-oss-20b")
"""Upstream runs these on CUDA and on ROCm (sglang PR 38791)."""


def case_id(model: str) -> str:
    return f"lora-logprob/{model}/trainer-kl"


def asked_for(profile: Profile, *models: str) -> Plan:
    return make_plan(profile, Selection(cases=tuple(map(case_id, models))), "x")


def engine_of(plan: Plan, model: str) -> PinnedModelSession:
    (case,) = [case for case in plan.cases if case.id == case_id(model)]
    (session,) = [session for session in plan.sessions if session.id == case.session]
    assert isinstance(session.spec, PinnedModelSession)
    return session.spec


def real(plan: Plan) -> dict[str, Case]:
    return {case.id.split("/")[1]: case for case in plan.cases if isinstance(case.spec, TrainerLogprobs)}


@pytest.mark.parametrize("name", UPSTREAM)
def test_a_row_is_what_the_upstream_test_says(name: str) -> None:
    model, data, rank, tp, limit, backends, further = UPSTREAM[name]
    plan = asked_for(find_profile("b200"), name)
    spec, engine = real(plan)[name].spec, engine_of(plan, name)
    assets = load_assets()
    assert isinstance(spec, TrainerLogprobs)
    assert [(assets[a.name].repository, assets[a.name].type) for a in engine.assets] == [
        (model, "model"),
        (data, "dataset"),
    ]
    assert spec.limit == limit
    assert tuple(engine.engine.get(key) for key in BACKENDS) == backends
    rest = {key: value for key, value in engine.engine.items() if key not in BACKENDS}
    lora = {"tp_size": tp, "max_lora_rank": rank, "lora_backend": "triton"}
    assert rest == {"device": "cuda", **lora, **further}
    assert spec.differing == ()


def test_the_table_has_these_rows_and_no_others() -> None:
    assert list(load_lora_models()) == list(UPSTREAM)


@pytest.mark.parametrize(("name", "value"), [("qwen3-8b", 2.818798e-04), ("gpt-oss-20b", 1.429855e-03)])
def test_published_values_are_told_with_where_they_come_from(name: str, value: float) -> None:
    (told,) = load_lora_models()[name].published
    assert (told.value, told.link) == (value, "https://github.com/sgl-project/sglang/pull/38791")
    assert "MI355X, ROCm 7.2" in told.on


@pytest.mark.parametrize(("profile", "models"), [("mi355x", TWO), ("b200", TWO), ("h200", ("qwen3-8b",)), ("cpu", ())])
def test_which_models_belong_to_a_profile(profile: str, models: tuple[str, ...]) -> None:
    own = find_profile(profile)
    planned = real(make_plan(own, Selection(), "x"))
    assert tuple(planned) == models
    assert all(case.skip is None for case in planned.values())
    assert not models or "lora-logprob" in own.mandatory


@pytest.mark.parametrize("model", TWO)
def test_rocm_runs_triton_attention(model: str) -> None:
    engine = engine_of(make_plan(find_profile("mi355x"), Selection(), "x"), model).engine
    assert tuple(engine[key] for key in BACKENDS) == TRITON
    assert (engine["lora_backend"], engine["tp_size"]) == ("triton", UPSTREAM[model][3])


def test_xpu_would_run_its_own_attention_by_a_profile_alone() -> None:
    """Upstream: attention_backend intel_xpu, and no other, on XPU."""
    profile = find_profile("b200")
    assert profile.real_models
    xpu = profile.real_models.model_copy(
        update={"arguments": {"device": "xpu"}, "attention": {"dense": {"attention_backend": "intel_xpu"}}}
    )
    plan = asked_for(profile.model_copy(update={"real_models": xpu}), "qwen3-8b")
    engine = engine_of(plan, "qwen3-8b").engine
    assert [engine.get(key) for key in ("device", *BACKENDS)] == ["xpu", "intel_xpu", None, None]


def test_a_model_has_as_many_gpus_as_upstream_gives_it_and_shares_none() -> None:
    plan = make_plan(find_profile("mi355x"), Selection(), "x")
    wide = {s.id: (s.gpus, s.alone) for s in plan.sessions if isinstance(s.spec, PinnedModelSession)}
    assert wide == {"sglang-qwen3-8b": (1, True), "sglang-gpt-oss-20b": (4, True)}


@pytest.mark.parametrize(
    ("profile", "model", "why"),
    [
        ("h200", "gpt-oss-20b", "needs 4 GPUs, profile H200-1gpu has 1"),
        ("mi355x", "kimi-k2.5", "needs 8 GPUs, profile MI355X-4gpu has 4"),
        ("cpu", "deepseek-v3.1-base", "no attention backend for deepseek-v3.1-base"),
        ("h200", "qwen3.5-4b", None),
        ("cpu", "qwen3-8b", None),
    ],
)
def test_what_a_machine_cannot_do_is_skipped_with_its_reason(profile: str, model: str, why: str | None) -> None:
    skip = real(asked_for(find_profile(profile), model))[model].skip
    assert (skip is None) if why is None else why in (skip or "")


def test_a_profile_without_real_models_says_so() -> None:
    bare = find_profile("cpu").model_copy(update={"real_models": None})
    assert "real_models" in (real(asked_for(bare, "qwen3-8b"))["qwen3-8b"].skip or "")
    assert real(make_plan(bare, Selection(), "x")) == {}


def test_what_differs_from_upstream_is_told() -> None:
    spec = real(asked_for(find_profile("cpu"), "qwen3-8b"))["qwen3-8b"].spec
    assert isinstance(spec, TrainerLogprobs)
    assert "lora_backend torch_native instead of triton" in spec.differing
    assert "disable_cuda_graph True" in spec.differing
    assert not any(text.startswith(("device", "attention", "tp_size")) for text in spec.differing)


@pytest.mark.parametrize("glob", ["*", "lora-logprob/*", "lora-logprob/qwen3*/trainer-kl", "*/trainer-kl"])
def test_a_glob_with_a_star_for_the_model_asks_for_nothing_beyond_the_profile(glob: str) -> None:
    assert set(real(make_plan(find_profile("b200"), Selection(cases=(glob,)), "x"))) <= set(TWO)


def test_what_is_asked_for_beside_the_profile_leaves_nothing_else_in() -> None:
    whole = make_plan(find_profile("cpu"), Selection(), "x")
    one = make_plan(find_profile("cpu"), Selection(cases=("lora-logprob/qwen3-8b/*",)), "x")
    assert list(real(one)) == ["qwen3-8b"] and len(one.cases) == 1
    assert one.omitted == len(whole.cases)


def test_models_that_no_profile_lists_are_the_opt_in_ones() -> None:
    listed = {name for p in load_profiles().values() if p.real_models for name in p.real_models.models}
    assets = load_assets()
    for model in load_lora_models().values():
        assert {assets[model.model].opt_in, assets[model.adapter].opt_in} == {model.name not in listed}
        assert {assets[name].gated for name in (model.model, model.adapter)} == {False}
        assert "compare_sample_train_data.pt" in assets[model.adapter].allow


def test_every_profile_can_be_asked_for_every_model() -> None:
    for profile in load_profiles().values():
        further = {case.id for _, case in FURTHER["lora-logprob"](profile)}
        own = {case.id for case in real(make_plan(profile, Selection(), "x")).values()}
        assert further | own == set(map(case_id, UPSTREAM)) and not further & own


def test_a_wrong_name_in_a_profile_is_one_line(tmp_path: Path) -> None:
    profile = find_profile("h200")
    assert isinstance(profile.real_models, RealModelSettings)
    wrong = profile.real_models.model_copy(update={"models": ("qwen3-9b",)})
    with pytest.raises(UsageFault, match=r"unknown model of lora_models.toml 'qwen3-9b'; did you mean .*qwen3-8b"):
        make_plan(profile.model_copy(update={"real_models": wrong}), Selection(), "x")


ROW = """
[[model]]
name = "tiny"
model = "qwen3-8b"
adapter = "lora-diff-qwen3-8b"
test = "test_lora_tiny_logprob_diff.py"
rank = 8
tp = 1
limit = 5e-3
attention = "dense"
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROW + ROW, "two models are called tiny"),
        (ROW.replace("limit = 5e-3", "limit = 0.0"), "key 'model.0.limit': .*greater than 0"),
        (ROW.replace("tp = 1", 'tp = "1"'), "key 'model.0.tp'"),
        (ROW.replace('"dense"', '"sparse"'), "key 'model.0.attention': .*'dense', 'sinks', 'latent' or 'unpinned'"),
        (ROW + "tolerance = 1.0", "key 'model.0.tolerance' is unknown"),
    ],
)
def test_a_damaged_table_is_one_line_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "lora_models.toml"
    path.write_text(text)
    with pytest.raises(UsageFault, match=message):
        load_lora_models(path)
