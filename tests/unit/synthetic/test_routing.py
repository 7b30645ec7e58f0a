"""The argument of `kit.synthetic.routing`, premise by premise, on the files."""

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from kit.synthetic.catalogue import TINY_GPT_OSS, TINY_QWEN3
from kit.synthetic.routing import code_places

PLACES = code_places(TINY_GPT_OSS)
LAYERS = range(TINY_GPT_OSS.layers)


@pytest.fixture(scope="module")
def model(assets: Path) -> dict[str, np.ndarray]:
    return load_file(assets / "tiny-gpt-oss/model.safetensors")


def test_a_model_without_experts_has_no_code() -> None:
    assert code_places(TINY_QWEN3).size == 0


def test_every_token_has_two_experts_well_ahead_and_every_expert_is_used(model: dict[str, np.ndarray]) -> None:
    code = np.sort(model["model.embed_tokens.weight"][:, PLACES], axis=-1)
    assert code[:, -2].min() >= 2.0 and code[:, -1].max() < 3.0
    assert code[:, -3].max() <= 0.0 and code[:, 0].min() > -1.0
    ahead = np.argsort(model["model.embed_tokens.weight"][:, PLACES], axis=-1)[:, -2:]
    pairs = {tuple(sorted(pair)) for pair in ahead.tolist()}
    assert len(pairs) == 8 * 7 // 2


@pytest.mark.parametrize("layer", LAYERS)
def test_nothing_writes_where_the_code_lies(model: dict[str, np.ndarray], layer: int) -> None:
    prefix = f"model.layers.{layer}"
    written = (
        model[f"{prefix}.self_attn.o_proj.weight"][PLACES],
        model[f"{prefix}.self_attn.o_proj.bias"][PLACES],
        model[f"{prefix}.mlp.experts.down_proj"][..., PLACES],
        model[f"{prefix}.mlp.experts.down_proj_bias"][:, PLACES],
    )
    assert not any(np.any(part) for part in written)


def test_no_adapter_writes_where_the_code_lies(assets: Path) -> None:
    writers = re.compile(r".*(o_proj|down_proj|embed_tokens)\.lora_(embedding_)?B.*")
    found = set()
    for path in (assets / "tiny-gpt-oss/adapters").rglob("*.safetensors"):
        for name, tensor in load_file(path).items():
            if writer := writers.fullmatch(name):
                found.add(writer[1])
                assert np.any(tensor) and not np.any(tensor[..., PLACES, :]), f"{path.parent.name} {name}"
    assert found == {"o_proj", "down_proj", "embed_tokens"}


@pytest.mark.parametrize("layer", LAYERS)
def test_what_a_router_reads_beside_the_code_is_bounded(model: dict[str, np.ndarray], layer: int) -> None:
    """The bounds of the docstring, and what they leave of the lead 4 · 2 / rms at rms 4: half a unit."""
    prefix = f"model.layers.{layer}"
    router, bias = model[f"{prefix}.mlp.router.weight"], model[f"{prefix}.mlp.router.bias"]
    norm = model[f"{prefix}.post_attention_layernorm.weight"]
    assert np.all(norm[PLACES] == 1.0)
    assert sorted(np.argmax(router[:, PLACES], axis=-1)) == list(range(8))
    assert np.count_nonzero(router[:, PLACES]) == 8 and router[:, PLACES].max() == 4.0
    rest = np.delete(router, PLACES, axis=1)
    apart = max(np.linalg.norm(left - right) for left in rest for right in rest)
    reading = apart * np.abs(norm).max() * np.sqrt(256)
    assert 0.1 < reading <= 1.1
    assert np.ptp(bias) <= 0.35
    assert 4.0 * 2.0 / 4.0 - reading - np.ptp(bias) >= 0.5
