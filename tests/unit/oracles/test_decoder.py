import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kit.oracles import canary
from kit.oracles.decoder import next_logprobs, prompt_logprobs
from kit.oracles.reference import LogprobOracle, read_adapter, read_model
from kit.oracles.rope import Rope
from kit.synthetic.catalogue import MODELS
from kit.synthetic.prompts import prompts

PROMPT = prompts([70], 2048, seed=3)[0]


@pytest.fixture(params=list(MODELS))
def model(assets: Path, request: pytest.FixtureRequest) -> Path:
    return assets / request.param


def adapters(model: Path) -> dict[str, Path]:
    return {adapter.name: model / "adapters" / adapter.name for adapter in MODELS[model.name].adapters}


def test_a_token_depends_on_nothing_after_it(model: Path) -> None:
    settings, weights = read_model(model)
    whole = prompt_logprobs(settings, weights, {}, PROMPT)
    part = prompt_logprobs(settings, weights, {}, PROMPT[:50])
    np.testing.assert_allclose(whole[:49], part, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", canary.CANARIES)
def test_probabilities_of_all_next_tokens_sum_to_one(family: str) -> None:
    weights, adapter = canary.canary_weights(family)
    following = next_logprobs(canary.CANARIES[family].settings, weights, adapter, canary.TOKENS)
    np.testing.assert_allclose(np.exp(following).sum(axis=-1), 1.0, rtol=0, atol=1e-14)


def test_prompt_logprobs_are_those_of_the_prompts_own_tokens(model: Path) -> None:
    oracle = LogprobOracle(model, adapters(model))
    following = oracle.next_logprobs(PROMPT, "adapter-1")
    assert following.shape == (len(PROMPT), 2048)
    own = [following[place, token] for place, token in enumerate(PROMPT[1:])]
    assert np.array_equal(oracle.logprobs(PROMPT, "adapter-1"), own)


@pytest.mark.parametrize("name", ["adapter-0", "adapter-1"])
def test_an_adapter_is_the_model_with_merged_weights(model: Path, name: str) -> None:
    settings, weights = read_model(model)
    adapter = read_adapter(model / "adapters" / name)
    merged = dict(weights)
    for module, low in adapter.items():
        merged[f"{module}.weight"] = merged[f"{module}.weight"] + low.scaling * low.b @ low.a
    np.testing.assert_allclose(
        prompt_logprobs(settings, weights, adapter, PROMPT),
        prompt_logprobs(settings, merged, {}, PROMPT),
        rtol=0,
        atol=1e-12,
    )


def test_scalings_are_read_as_alpha_over_rank(model: Path) -> None:
    modules = 2 * len(MODELS[model.name].adapters[0].modules)
    for name, scaling in (("adapter-0", 1.625), ("adapter-1", 1.375)):
        adapter = read_adapter(model / "adapters" / name)
        assert len(adapter) == modules
        assert {low.scaling for low in adapter.values()} == {scaling}


@pytest.mark.parametrize("name", ["head", "everything"])
def test_an_adapter_on_embedding_and_head_is_the_model_with_merged_weights(model: Path, name: str) -> None:
    settings, weights = read_model(model)
    adapter = {
        module: low for module, low in read_adapter(model / "adapters" / name).items() if "experts" not in module
    }
    merged = dict(weights)
    for module, low in adapter.items():
        change = low.scaling * low.b @ low.a
        merged[f"{module}.weight"] = merged[f"{module}.weight"] + (change.T if "embed" in module else change)
    np.testing.assert_allclose(
        prompt_logprobs(settings, weights, adapter, PROMPT),
        prompt_logprobs(settings, merged, {}, PROMPT),
        rtol=0,
        atol=1e-12,
    )


def test_rslora_scales_by_the_root_of_the_rank(model: Path) -> None:
    adapter = read_adapter(model / "adapters/rslora")
    assert {low.scaling for low in adapter.values()} == {5 / 8**0.5}


def test_shared_outer_tensors_are_those_of_every_expert(assets: Path) -> None:
    adapter = read_adapter(assets / "tiny-gpt-oss/adapters/shared-outer")
    assert len(adapter) == 2 * 8 * 3
    for part, shared, own in (("gate_proj", "a", "b"), ("up_proj", "a", "b"), ("down_proj", "b", "a")):
        first, last = (adapter[f"model.layers.1.mlp.experts.{expert}.{part}"] for expert in (0, 7))
        assert np.array_equal(getattr(first, shared), getattr(last, shared))
        assert not np.array_equal(getattr(first, own), getattr(last, own))


def test_what_is_no_part_of_lora_is_refused(assets: Path, tmp_path: Path) -> None:
    source = assets / "tiny-qwen3/adapters/adapter-0"
    shutil.copy(source / "adapter_config.json", tmp_path)
    tensors = load_file(source / "adapter_model.safetensors")
    save_file(
        {**tensors, "base_model.model.model.norm.weight": np.ones(256, np.float32)},
        tmp_path / "adapter_model.safetensors",
    )
    with pytest.raises(ValueError, match=r"norm\.weight is no part of LoRA"):
        read_adapter(tmp_path)


def test_positions_matter(model: Path) -> None:
    """With the base of the rotation changed, answers move: positions do reach attention."""
    settings, weights = read_model(model)
    turned = replace(settings, rope=replace(settings.rope, rope_theta=1e3))
    moved = np.abs(prompt_logprobs(turned, weights, {}, PROMPT) - prompt_logprobs(settings, weights, {}, PROMPT))
    assert moved[1:].max() > 1e-3


def test_the_oracle_keeps_identities_apart(model: Path) -> None:
    oracle = LogprobOracle(model, adapters(model))
    answers = [oracle.logprobs(PROMPT, identity) for identity in (None, "adapter-0", "adapter-1", None)]
    assert np.array_equal(answers[0], answers[3])
    for left, right in ((0, 1), (0, 2), (1, 2)):
        assert np.mean(0.5 * (answers[left] - answers[right]) ** 2) > 0.03


def test_a_window_hides_what_is_behind_it_from_its_layer(assets: Path) -> None:
    """With every layer windowed by 32, token 0 reaches at most 2 · 31 positions far; with the full layer it reaches all."""
    settings, weights = read_model(assets / "tiny-gpt-oss")
    assert settings.windows == (32, None)
    other = [(PROMPT[0] + 1) % 2048, *PROMPT[1:]]
    for windows, reach in (((32, 32), 63), (settings.windows, len(PROMPT) - 1)):
        chosen = replace(settings, windows=windows)
        moved = next_logprobs(chosen, weights, {}, PROMPT) - next_logprobs(chosen, weights, {}, other)
        felt = np.flatnonzero(np.max(np.abs(moved), axis=-1) > 1e-9)
        assert felt[-1] == min(reach, 62) if windows == (32, 32) else felt[-1] == reach


def test_every_weight_of_gpt_oss_that_others_lack_is_felt(assets: Path) -> None:
    settings, weights = read_model(assets / "tiny-gpt-oss")
    base = prompt_logprobs(settings, weights, {}, PROMPT)
    for part in ("self_attn.sinks", "self_attn.q_proj.bias", "mlp.router.bias", "mlp.experts.down_proj_bias"):
        name = f"model.layers.0.{part}"
        moved = prompt_logprobs(settings, {**weights, name: np.zeros_like(weights[name])}, {}, PROMPT)
        assert np.mean(0.5 * (moved - base) ** 2) > 1e-7, part
    unclamped = replace(settings, experts=replace(settings.experts, swiglu_limit=1e9))
    assert np.mean(0.5 * (prompt_logprobs(unclamped, weights, {}, PROMPT) - base) ** 2) > 1e-4


def test_plain_frequencies_are_a_special_case_of_stretched_ones() -> None:
    plain = Rope("default", 1e4).frequencies(64)
    for kind in ("llama3", "yarn"):
        same = Rope(kind, 1e4, factor=1.0, original_max_position_embeddings=64)
        np.testing.assert_allclose(same.frequencies(64), plain, rtol=1e-15)
        assert same.growth == 1.0
        stretched = Rope(kind, 1e4, factor=8.0, original_max_position_embeddings=64).frequencies(64)
        assert stretched[0] == plain[0] and stretched[-1] == pytest.approx(plain[-1] / 8.0)


def test_an_unknown_way_to_stretch_positions_is_refused(assets: Path, tmp_path: Path) -> None:
    text = (assets / "tiny-llama/config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"llama3"', '"longrope"'))
    with pytest.raises(ValueError, match="rope_type"):
        read_model(tmp_path)


def test_a_text_of_512_tokens_takes_well_under_a_second(assets: Path) -> None:
    """Processor time, both computations; 0.4 s on an idle core."""
    text = prompts([512], 2048, seed=5)[0]
    for name in MODELS:
        oracle = LogprobOracle(assets / name, {})
        start = time.process_time()
        oracle.logprobs(text, None)
        used = time.process_time() - start
        start = time.process_time()
        assert oracle.next_logprobs(text, None).shape == (512, 2048)
        assert time.process_time() - start < 0.01, "the pass was not kept"
        print(f"{name}: {used:.2f} s")
