import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from kit.errors import EnvironmentFault, UsageFault
from kit.synthetic.catalogue import MODELS
from kit.synthetic.files import materialise, model_files

RECORDED = {
    "tiny-qwen3/adapters/adapter-0/adapter_config.json": (
        "64bb6cb9f204bfeaed03a689ee8a2d73b5d195f970482cb0ffc72f0caa3713dd"
    ),
    "tiny-qwen3/adapters/adapter-0/adapter_model.safetensors": (
        "db1eb8faef00a9ed6dac0307e8118afddbc3e4e8192d32df12cfb7dc693b04eb"
    ),
    "tiny-qwen3/adapters/adapter-1/adapter_config.json": (
        "108290d8451e7ca73c404ffd27147e45b40766340bbed063b63528b0bdcc1db4"
    ),
    "tiny-qwen3/adapters/adapter-1/adapter_model.safetensors": (
        "7e030c46ea8daa1e353e73426ac3f03ea01cd30e09b948de079404ef79917dff"
    ),
    "tiny-qwen3/config.json": ("494f2ff49c5b031ebb2d659dec805446b90b66917d680903b11d26d6330c85a6"),
    "tiny-qwen3/model.safetensors": ("428bc09c26d9049d0a13582ca0a2f6cb4f38c7ad600dfd2e0e8e5193cd2cce7a"),
    "tiny-llama/adapters/adapter-0/adapter_config.json": (
        "ade92ecdeadf05105161b6315c633bfa1a611713a443008449589c849352e6b3"
    ),
    "tiny-llama/adapters/adapter-0/adapter_model.safetensors": (
        "0d5693a32180773c47ff10b79059c5813d52d1a47d3f88a53f44f419664deac2"
    ),
    "tiny-llama/adapters/adapter-1/adapter_config.json": (
        "1f8781ba79f030c3d90ed8099b80c556e24a9a65fa32a23ca0846c0e4ceb50a0"
    ),
    "tiny-llama/adapters/adapter-1/adapter_model.safetensors": (
        "e9b643a8eb18c662ef1bc1f6a4286db0202520300367d2232df2d1e71fffcb01"
    ),
    "tiny-llama/config.json": ("640ef66a4b9aa31009c5ea857f5798be82f48500c57e4b4f8a1e620fac095367"),
    "tiny-llama/model.safetensors": ("b52c6d1d03b38e42dbf2f44a47e8b05b6d7fe5b794ae476ff3d3d3425792d9e4"),
    "tiny-gpt-oss/adapters/adapter-0/adapter_config.json": (
        "4b185fd8daa0a97108e9d2b8df874b99bd7db2051eb6d327a63794ad24bc4c3b"
    ),
    "tiny-gpt-oss/adapters/adapter-0/adapter_model.safetensors": (
        "90896a87669df9831134ee865b172c62cb55d819539e8d8aeec3df1eda52ee56"
    ),
    "tiny-gpt-oss/adapters/adapter-1/adapter_config.json": (
        "490238a40fc6e163ee745ddc514b6bbbf3dd1e8dbece714e13c3506b3ea1f0e3"
    ),
    "tiny-gpt-oss/adapters/adapter-1/adapter_model.safetensors": (
        "df3df3977d7c034a49ee880cbfe70bcbdceafdeead15fd2e6358f9779ac0f60f"
    ),
    "tiny-gpt-oss/config.json": ("600300e6301f71adfe47050a8d5520e882fd67531249d4d0732fa9e24c055ef2"),
    "tiny-gpt-oss/model.safetensors": ("8bf125d0a9fdc5b8947f4c7b844db1d773ca153c0214f5e92582d02720cb924f"),
}


@pytest.mark.parametrize("model", MODELS)
def test_files_are_byte_for_byte_those_recorded(assets: Path, model: str) -> None:
    found = {a.path: a.sha256 for a in materialise([model], assets)}
    assert found == {path: digest for path, digest in RECORDED.items() if path.startswith(f"{model}/")}
    for path, digest in found.items():
        assert hashlib.sha256((assets / path).read_bytes()).hexdigest() == digest


def test_a_model_with_its_adapters_is_made_in_two_seconds() -> None:
    """Processor time; 0.2 to 0.6 s on an idle core."""
    for model in MODELS.values():
        start = time.process_time()
        model_files(model)
        assert time.process_time() - start < 2.0, model.name


def test_every_weight_is_exact_in_bfloat16_and_float16(assets: Path) -> None:
    for path in assets.rglob("*.safetensors"):
        for name, tensor in load_file(path).items():
            assert tensor.dtype == np.float32, name
            assert not np.any(tensor.view(np.uint32) & 0xFFFF), f"{name} is not exact in bfloat16"
            assert np.array_equal(tensor.astype(np.float16).astype(np.float32), tensor), (
                f"{name} is not exact in float16"
            )


def test_shapes_are_those_of_the_configuration(assets: Path) -> None:
    model = load_file(assets / "tiny-qwen3/model.safetensors")
    config = json.loads((assets / "tiny-qwen3/config.json").read_text())
    assert model["lm_head.weight"].shape == (config["vocab_size"], config["hidden_size"]) == (2048, 256)
    assert not np.array_equal(model["lm_head.weight"], model["model.embed_tokens.weight"])
    assert model["model.layers.1.self_attn.k_proj.weight"].shape == (2 * 64, 256)
    adapter = load_file(assets / "tiny-qwen3/adapters/adapter-1/adapter_model.safetensors")
    assert len(adapter) == 2 * 7 * 2
    assert adapter["base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"].shape == (16, 512)


@pytest.mark.parametrize("model", ["tiny-llama", "tiny-gpt-oss"])
def test_what_tensor_parallelism_splits_divides_by_four(assets: Path, model: str) -> None:
    config = json.loads((assets / model / "config.json").read_text())
    split = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size", "num_local_experts")
    assert [name for name in split if config.get(name, 0) % 4] == []


def test_the_experts_are_laid_out_as_in_gpt_oss(assets: Path) -> None:
    model = load_file(assets / "tiny-gpt-oss/model.safetensors")
    shapes = {name.rsplit("layers.0.", 1)[1]: tensor.shape for name, tensor in model.items() if "layers.0.mlp" in name}
    assert shapes == {
        "mlp.router.weight": (8, 256),
        "mlp.router.bias": (8,),
        "mlp.experts.gate_up_proj": (8, 256, 512),
        "mlp.experts.gate_up_proj_bias": (8, 512),
        "mlp.experts.down_proj": (8, 256, 256),
        "mlp.experts.down_proj_bias": (8, 256),
    }
    assert model["model.layers.1.self_attn.sinks"].shape == (8,)
    config = json.loads((assets / "tiny-gpt-oss/config.json").read_text())
    assert config["layer_types"] == ["sliding_attention", "full_attention"]
    assert (config["sliding_window"], config["swiglu_limit"]) == (32, 7.0)


def test_scalings_are_no_powers_of_two(assets: Path) -> None:
    for path in assets.rglob("adapter_config.json"):
        config = json.loads(path.read_text())
        mantissa, _ = np.frexp(config["lora_alpha"] / config["r"])
        assert mantissa != 0.5


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    first = materialise(["tiny-qwen3"], tmp_path)
    damaged = tmp_path / "tiny-qwen3/config.json"
    damaged.write_text("{}")
    assert materialise(["tiny-qwen3"], tmp_path) == first
    assert damaged.read_text() != "{}"
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny-qwen3"]


def test_an_interrupted_write_leaves_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    def fail_late(fd: int) -> None:
        nonlocal written
        written += 1
        if written == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", fail_late)
    with pytest.raises(KeyboardInterrupt):
        materialise(["tiny-qwen3"], tmp_path)
    assert written == 3
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot write synthetic assets") as caught:
        materialise(["tiny-qwen3"], tmp_path / "file")
    assert "\n" not in str(caught.value)


def test_an_unknown_model_names_its_near_match(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="did you mean 'tiny-qwen3'"):
        materialise(["tiny-quen3"], tmp_path)


@pytest.mark.parametrize(
    "module", ["kit.synthetic.catalogue", "kit.batteries", "kit.faults.catalogue", "kit.checks", "kit.subjects"]
)
def test_what_the_host_imports_is_light(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('numpy', 'torch', 'safetensors', 'sglang') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
