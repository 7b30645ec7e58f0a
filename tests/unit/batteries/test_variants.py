import pytest

from kit.batteries import lora_logprob
from kit.batteries.sessions import plain_adapters, sglang
from kit.batteries.variants import VARIANTS, variants_of
from kit.check_spec import DecodeLogprobs, PromptLogprobs, Repeatability
from kit.errors import UsageFault
from kit.profile import EngineChange, EngineVariant, Profile, find_profile, load_profiles
from kit.synthetic.catalogue import MODELS, TINY_GPT_OSS, TINY_QWEN3

PROFILES = load_profiles()


def with_engine(profile: Profile, **settings: object) -> Profile:
    return profile.model_copy(update={"engine": profile.engine.model_copy(update=settings)})


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_every_profile_says_of_every_variant_how_or_why_not(name: str) -> None:
    assert set(PROFILES[name].engine.variants) == set(VARIANTS)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_every_variant_is_a_case_or_a_skip_with_its_reason(name: str) -> None:
    cases = [case for _, case in lora_logprob.cases(PROFILES[name])]
    for variant, settings in variants_of(PROFILES[name]):
        own = [case for case in cases if f"+{variant}/" in case.id]
        assert own and {case.skip for case in own} == {settings.absent}


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_variant_differs_from_the_settings_as_they_stand(name: str) -> None:
    sessions = {session.id: session.spec for session, _ in lora_logprob.cases(PROFILES[name])}
    for variant, settings in variants_of(PROFILES[name]):
        if settings.absent is None:
            for model in settings.models or MODELS:
                assert sessions[f"sglang-{model}-{variant}"] != sessions[f"sglang-{model}"]


def test_a_variant_that_the_profile_leaves_out_is_skipped_and_says_so() -> None:
    profile = with_engine(find_profile("cpu"), variants={})
    skipped = [case for _, case in lora_logprob.cases(profile) if case.skip]
    assert len(skipped) == len(VARIANTS)
    assert {case.skip for case in skipped} == {"the profile does not say how to start it"}


def test_a_variant_that_no_battery_knows_is_refused() -> None:
    profile = with_engine(find_profile("cpu"), variants={"lora-tritn": EngineVariant(dtype="float16")})
    with pytest.raises(UsageFault, match=r"no battery knows 'lora-tritn'.*lora-triton"):
        list(lora_logprob.cases(profile))


@pytest.mark.parametrize("wrong", [{"absent": "no GPU", "dtype": "float16"}, {"models": ("tiny-qwen3",)}])
def test_a_variant_says_either_how_or_why_not(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="absent"):
        EngineVariant(**wrong)  # type: ignore[arg-type]


def test_a_variant_wins_over_the_model_and_the_model_over_the_profile() -> None:
    profile = with_engine(
        find_profile("cpu"),
        dtype="float32",
        arguments={"a": 1, "b": 1, "c": 1},
        environment={"E": "1", "F": "1"},
        models={"tiny-gpt-oss": EngineChange(arguments={"b": 2, "c": 2}, environment={"F": "2"}, dtype="float16")},
        variants={"bfloat16": EngineVariant(arguments={"c": 3}, dtype="bfloat16", gpus=4)},
    )
    plain, own = sglang(profile, TINY_QWEN3), sglang(profile, TINY_GPT_OSS, ["adapter-0"], "bfloat16")
    assert (plain.spec.engine, plain.spec.environment, plain.spec.dtype) == (
        {"a": 1, "b": 1, "c": 1}, {"E": "1", "F": "1"}, "float32",
    )  # fmt: skip
    assert (own.spec.engine, own.spec.environment, own.spec.dtype) == (
        {"a": 1, "b": 2, "c": 3, "tp_size": 4}, {"E": "1", "F": "2"}, "bfloat16",
    )  # fmt: skip
    assert (own.id, own.gpus, own.spec.adapters) == ("sglang-tiny-gpt-oss-bfloat16", 4, ("adapter-0",))
    assert (plain.id, plain.gpus) == ("sglang-tiny-qwen3", 1)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_identity_is_asked_at_every_length_on_every_profile(model: str) -> None:
    for profile in PROFILES.values():
        specs = {case.id: case.spec for _, case in lora_logprob.cases(profile)}
        for identity in (None, *plain_adapters(MODELS[model])):
            asked = specs[f"lora-logprob/{model}/{identity or 'base'}"]
            assert isinstance(asked, PromptLogprobs) and asked.adapter == identity
            assert {1, 2, 16, 17, 63, 64, 65, 129, 200} <= set(asked.prompt_lengths)


def test_long_texts_are_generated_and_one_request_is_sent_twenty_times() -> None:
    specs = [case.spec for _, case in lora_logprob.cases(find_profile("cpu"))]
    assert {s.adapter is None for s in specs if isinstance(s, DecodeLogprobs) and s.new_tokens == 256} == {True, False}
    assert all(s.times == 20 for s in specs if isinstance(s, Repeatability))
    assert any(isinstance(s, Repeatability) for s in specs)


def test_one_prompt_is_longer_than_a_chunk_of_prefill() -> None:
    for session, case in lora_logprob.cases(find_profile("cpu")):
        if "+chunked-prefill/" in case.id and isinstance(case.spec, PromptLogprobs):
            assert max(case.spec.prompt_lengths) > session.spec.engine["chunked_prefill_size"] > 0


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_adapter_of_the_catalogue_is_asked_where_there_is_a_gpu(model: str) -> None:
    asked = {case.spec.adapter for s, case in lora_logprob.cases(find_profile("h200-1gpu"))
             if isinstance(case.spec, PromptLogprobs) and s.spec.model == model and case.skip is None}  # fmt: skip
    assert asked == {None, *(adapter.name for adapter in MODELS[model].all_adapters)}


def test_tensor_parallel_engines_are_asked_as_much_as_those_on_one_gpu() -> None:
    cases = {case.id: case.spec for _, case in lora_logprob.cases(find_profile("h200-2gpu"))}
    asked = set()
    for case_id, spec in cases.items():
        subject, aspect = case_id.split("/")[1:]
        if subject in MODELS and isinstance(spec, PromptLogprobs | DecodeLogprobs | Repeatability):
            assert cases[f"lora-logprob/{subject}+tensor-parallel/{aspect}"] == spec
            asked.add((subject, spec.check))
    assert len(asked) == 3 * len(MODELS)
