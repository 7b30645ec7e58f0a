"""Upstream's text tests of several adapters: the table, what is drawn, the engines, and which hardware has another limit."""

import pytest

from kit.asset import load_assets
from kit.batteries.text_models import split_batches, text_batches
from kit.check_spec import UpstreamSplitting, UpstreamTexts
from kit.host.planner import Selection, make_plan
from kit.plan import PinnedTextsSession, Plan
from kit.profile import find_profile
from kit.text_model import load_text_models

# Of SGLang's lora_utils.py: model, the two adapters with their prefill_tolerance and the ROUGE-L that holds, max_loaded_loras.
UPSTREAM = {
    "llama-2-7b": (
        "meta-llama/Llama-2-7b-hf",
        ("winddude/wizardLM-LlaMA-LoRA-7B", 1e-1, 0.9),
        ("RuterNorway/Llama-2-7b-chat-norwegian-LoRa", 3e-1, 0.9),
        4,
    ),
    "llama-3.1-8b-instruct": (
        "meta-llama/Llama-3.1-8B-Instruct",
        ("algoprog/fact-generation-llama-3.1-8b-instruct-lora", 1e-1, 1.0),
        ("nvidia/llama-3.1-nemoguard-8b-topic-control", 1e-1, 1.0),
        None,
    ),
    "qwen3-4b": (
        "Qwen/Qwen3-4B",
        ("nissenj/Qwen3-4B-lora-v2", 3e-1, 1.0),
        ("TanXS/Qwen3-4B-LoRA-ZH-WebNovelty-v0.0", 3e-1, 1.0),
        None,
    ),
}
A, B = "adapter-0", "adapter-1"


def plan(profile: str, model: str) -> Plan:
    return make_plan(find_profile(profile), Selection(cases=(f"multi-lora/{model}/*",)), "run")


def test_the_table_is_upstreams() -> None:
    assets, models = load_assets(), load_text_models()
    found = {
        name: (
            assets[row.model].repository,
            *((assets[a.asset].repository, a.prefill, a.rouge_l) for a in row.adapters),
            row.max_loaded_loras,
        )
        for name, row in models.items()
    }
    assert found == UPSTREAM
    assert {(row.base.rouge_l, row.base.prefill) for row in models.values()} == {(1.0, 1e-1)}


def test_batches_are_upstreams() -> None:
    five = ((None, A, B), (A, None, B), (A, B, None), (None, B, None), (None, None, None))
    assert tuple(batch.identities for batch in text_batches()) == five
    assert [batch.identities for batch in split_batches()] == [*five[:4], (A, B, A), five[4]]
    assert {batch.prompts for batch in split_batches()} == {(0, 0, 0)}


def test_prompts_are_drawn_as_upstream_draws_them() -> None:
    """random.seed(42), then random.choice of six prompts for each row in turn."""
    import random

    random.seed(42)
    drawn = [random.choice(["0", "1", "2", "3", "4", "5"]) for _ in range(15)]
    assert [str(prompt) for batch in text_batches() for prompt in batch.prompts] == drawn


@pytest.mark.parametrize("profile", ["b200", "mi355x", "h200"])
def test_llama_2_belongs_to_gpu_profiles_with_upstreams_settings(profile: str) -> None:
    own = make_plan(find_profile(profile), Selection(batteries=("multi-lora",)), "run")
    cases = {case.id: case for case in own.cases if "/llama-2-7b/" in case.id}
    assert [name.rsplit("/", 1)[1] for name in cases] == ["base-text", f"{A}-text", f"{B}-text", "batch-splitting"]
    engines = {s.id: s.spec for s in own.sessions if isinstance(s.spec, PinnedTextsSession)}
    for name, slots in (("texts", 3), ("splitting", 2)):
        spec = engines[f"sglang-llama-2-7b-{name}"]
        told = {key: spec.engine[key] for key in ("attention_backend", "disable_cuda_graph", "disable_radix_cache")}
        assert told == {"attention_backend": "torch_native", "disable_cuda_graph": True, "disable_radix_cache": True}
        assert (spec.dtype, spec.engine["max_loras_per_batch"], spec.engine["max_loaded_loras"]) == (
            "float16",
            slots,
            4,
        )
    for case in cases.values():
        assert isinstance(case.spec, UpstreamTexts | UpstreamSplitting)
        assert case.spec.new_tokens == (32 if isinstance(case.spec, UpstreamTexts) else 64)
        assert case.spec.differing == ()
    other = {case.id: [limit.limit for limit in case.limits] for case in cases.values() if case.limits}
    assert other == ({"multi-lora/llama-2-7b/base-text": [0.9]} if profile == "mi355x" else {})


def test_the_other_pairs_are_run_where_they_are_asked_for() -> None:
    for model in ("qwen3-4b", "llama-3.1-8b-instruct"):
        assert len(plan("b200", model).cases) == 4
    everything = make_plan(find_profile("b200"), Selection(), "run")
    assert not any("/qwen3-4b/" in case.id for case in everything.cases)


def test_what_a_profile_sets_otherwise_is_told() -> None:
    (case, *_) = plan("cpu", "llama-2-7b").cases
    assert isinstance(case.spec, UpstreamTexts)
    assert "lora_backend torch_native instead of csgmv" in case.spec.differing
