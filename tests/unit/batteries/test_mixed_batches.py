"""What the mixed batches of a profile promise: every class, rank, size and threshold, and nothing that a known finding spoils."""

from functools import cache

import pytest

from kit.batteries import mixed_batches, multi_lora
from kit.batteries.lora_logprob import long_text
from kit.check_spec import BatchInvariance, MixedBatch, MixedBatches
from kit.plan import Case
from kit.profile import Profile, load_profiles
from kit.synthetic.catalogue import MODELS, TINY_GPT_OSS, TINY_LLAMA, TINY_QWEN3, ModelShape
from kit.synthetic.compositions import NAMED

PROFILES = load_profiles()
CPU, GPU = PROFILES["cpu"], PROFILES["H200-1gpu"]
THRESHOLDS = (1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257)
Mixed = MixedBatches | BatchInvariance


@cache
def planned(profile: str) -> list[Case]:
    return [case for _, case in multi_lora.cases(PROFILES[profile])]


def specs(profile: Profile, model: str) -> dict[str, Mixed]:
    cases = [case for case in planned(profile.name) if case.id.startswith(f"multi-lora/{model}/")]
    return {c.id.rsplit("/", 1)[1]: c.spec for c in cases if isinstance(c.spec, MixedBatches | BatchInvariance)}


def batches(profile: Profile, model: str) -> list[MixedBatch]:
    return [batch for spec in specs(profile, model).values() for batch in spec.batches]


FULL = [
    pytest.param(CPU, TINY_QWEN3, id="cpu"),
    *(pytest.param(GPU, model, id=f"gpu-{model.name}") for model in MODELS.values()),
]


@pytest.mark.parametrize(("profile", "model"), FULL)
def test_every_class_is_there(profile: Profile, model: ModelShape) -> None:
    found = specs(profile, model.name)
    assert [len(found[f"every-class-of-{rows}"].batches) for rows in (1, 2, 3, 4)] == [2, 5, 15, 52]
    for name in NAMED:
        (batch,) = found[f"class-{name}"].batches
        assert len(batch.composition) == 16


@pytest.mark.parametrize(("profile", "model"), FULL)
def test_every_size_of_1_to_16_rows_and_every_rank_of_4_to_64_meet(profile: Profile, model: ModelShape) -> None:
    planned = batches(profile, model.name)
    assert {len(batch.composition) for batch in planned} >= {*range(1, 17), 32, 63, 64}
    ranks = {adapter.name: adapter.rank for adapter in model.all_adapters}
    meeting = {frozenset(ranks.get(who or "", 0) for who in batch.composition) for batch in planned}
    assert any(ranks_of >= {0, 4, 8, 16, 64} for ranks_of in meeting)
    assert any(len(set(batch.composition)) < len(batch.composition) - 3 for batch in planned), "repeated adapters"
    assert any(len(set(batch.prompt_lengths)) >= 10 for batch in planned), "different lengths"


@pytest.mark.parametrize(("profile", "model"), FULL)
@pytest.mark.parametrize("count", THRESHOLDS)
def test_every_threshold_is_met_by_a_whole_batch_and_by_one_row(
    profile: Profile, model: ModelShape, count: int
) -> None:
    whole, *beside = specs(profile, model.name)[f"tokens-{count}"].batches
    assert sum(whole.prompt_lengths) == count and len(whole.composition) == min(count, 6)
    for batch in beside:
        assert count in batch.prompt_lengths and len(set(batch.composition)) >= 3


@pytest.mark.parametrize(("profile", "model"), FULL)
def test_in_decode_a_row_is_a_token(profile: Profile, model: ModelShape) -> None:
    decoded = specs(profile, model.name)["decode-rows"].batches
    assert {len(batch.composition) for batch in decoded} == {1, 2, 15, 16, 17, 63, 64}
    assert all(min(batch.new_tokens) >= 2 for batch in decoded)
    ending, *small = specs(profile, model.name)["decode-shrinking"].batches
    assert sorted(ending.new_tokens) == [*range(1, 17)] and list(ending.new_tokens) != sorted(ending.new_tokens)
    assert [len(batch.composition) for batch in small] == [1, 2, 3]


@pytest.mark.parametrize(("profile", "model"), FULL)
def test_small_batches_follow_large_ones(profile: Profile, model: ModelShape) -> None:
    shrinking = specs(profile, model.name)["shrinking"].batches
    assert [len(batch.composition) for batch in shrinking[:4]] == [16, 1, 2, 3]


@pytest.mark.parametrize(("profile", "model"), FULL)
def test_long_texts_are_as_long_as_the_profile_and_the_window_allow(profile: Profile, model: ModelShape) -> None:
    (batch,) = specs(profile, model.name)["decode-long"].batches
    assert len(set(batch.composition)) >= 4 and batch.composition.count("rank-64") == 2
    for prompt, new in zip(batch.prompt_lengths, batch.new_tokens, strict=True):
        assert new == (long_text(profile, model) if model.window is None else model.window - prompt)
    if model.window is None:
        assert batch.new_tokens == (256,) * len(batch.composition)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_what_known_findings_spoil_is_kept_out(profile: str) -> None:
    """0011: decode beyond the window. 0032: rsLoRA. 0050: half a head in a slot that is used again. Each has a case of its own."""
    for model in MODELS.values():
        for aspect, spec in specs(PROFILES[profile], model.name).items():
            for batch in spec.batches:
                assert ("rslora" in batch.composition) == (aspect == "rslora-among-others")
                for prompt, new in zip(batch.prompt_lengths, batch.new_tokens, strict=True):
                    assert prompt + new <= model.positions
                    assert model.window is None or new == 1 or prompt + new <= model.window
    for aspect, spec in specs(PROFILES[profile], "tiny-qwen3+few-slots").items():
        halves = {who for batch in spec.batches for who in batch.composition} & {"embedding", "lm-head"}
        assert bool(halves) == (aspect == "half-a-head")


def test_an_engine_with_few_slots_is_sent_more_identities_than_slots() -> None:
    (session,) = {s.id: s for s, c in multi_lora.cases(CPU) if "few-slots" in c.id}.values()
    assert session.spec.engine["max_loras_per_batch"] == multi_lora.SLOTS  # type: ignore[union-attr]
    for aspect in ("class-all-different", "class-round-robin", "shrinking", "decode-rows"):
        sent = specs(CPU, "tiny-qwen3+few-slots")[aspect].batches
        assert any(len(set(batch.composition)) > multi_lora.SLOTS for batch in sent)
    decoding = specs(CPU, "tiny-qwen3+few-slots")["class-all-different"].batches
    assert [set(batch.new_tokens) for batch in decoding] == [{1}, {3}]


def test_a_slot_has_had_another_head_when_half_a_head_comes() -> None:
    """Three slots: each batch but the last of three takes all of them, so what the last finds does not depend on earlier cases."""
    modules = {adapter.name: {"embed_tokens", "lm_head"} & {*adapter.modules} for adapter in TINY_QWEN3.all_adapters}
    sent = [batch.composition for batch in specs(CPU, "tiny-qwen3+few-slots")["half-a-head"].batches]
    halves = []
    for clear, full, half in (sent[:3], sent[3:]):
        assert None not in (*clear, *full) and len(set(clear)) == len(set(full)) == len(set(half)) == multi_lora.SLOTS
        assert not any(modules[who or ""] for who in clear)
        (own,) = modules[half[0] or ""]
        assert all(modules[who or ""] - {own} for who in full) and half[0] not in full
        halves.append(own)
    assert sorted(halves) == ["embed_tokens", "lm_head"]


def test_invariance_is_measured_up_to_64_rows_and_judged_in_deterministic_mode_alone() -> None:
    spec = specs(CPU, "tiny-qwen3")["batch-invariance"]
    assert isinstance(spec, BatchInvariance) and not spec.exact
    assert [len(batch.composition) for batch in spec.batches] == [1, 2, 4, 8, 16, 32, 64]
    arguments = {**CPU.engine.arguments, "enable_deterministic_inference": True}
    engine = CPU.engine.model_copy(update={"arguments": arguments})
    assert mixed_batches.invariance(CPU.model_copy(update={"engine": engine}), TINY_QWEN3).exact


def test_slow_engines_are_asked_less_and_gpus_everything() -> None:
    full = specs(CPU, TINY_QWEN3.name).keys()
    assert specs(CPU, TINY_GPT_OSS.name).keys() == {"few-rows"}
    some = specs(CPU, TINY_LLAMA.name).keys()
    assert {"few-rows", "class-all-different", "shrinking", "tokens-64", "tokens-65", "decode-shrinking"} < some < full
    for model in MODELS.values():
        beyond_the_window = set() if model.window is None else {mixed_batches.TEXT}
        assert specs(GPU, model.name).keys() == full - beyond_the_window
