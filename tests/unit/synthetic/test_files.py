import hashlib
import json
import re
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
    path: digest
    for digest, path in (line.split() for line in Path(__file__).with_name("SHA256SUMS").read_text().splitlines())
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
    "module",
    [
        "kit.synthetic.catalogue",
        "kit.batteries",
        "kit.faults.catalogue",
        "kit.checks",
        "kit.subjects",
        "kit.worker.session",
    ],
)
def test_what_the_host_imports_is_light(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('numpy', 'torch', 'safetensors', 'sglang') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def of_adapter(assets: Path, model: str, name: str) -> tuple[dict, set[str]]:
    """Configuration and adapted modules, layer numbers left out."""
    folder = assets / model / "adapters" / name
    tensors = load_file(folder / "adapter_model.safetensors")
    modules = {re.sub(r"^base_model\.model\.(model\.(layers\.\d\.)?)?|\.lora_.*", "", tensor) for tensor in tensors}
    return json.loads((folder / "adapter_config.json").read_text()), modules


@pytest.mark.parametrize("model", MODELS)
def test_adapters_differ_in_rank_scaling_and_modules(assets: Path, model: str) -> None:
    attention = {f"self_attn.{part}_proj" for part in "qkvo"}
    mlp = {f"mlp.{part}_proj" for part in ("gate", "up", "down")} if model != "tiny-gpt-oss" else set()
    config, modules = of_adapter(assets, model, "rank-4")
    assert (config["r"], modules) == (4, attention | mlp)
    config, _ = of_adapter(assets, model, "rslora")
    assert config["use_rslora"] is True
    assert of_adapter(assets, model, "query-value")[1] == {"self_attn.q_proj", "self_attn.v_proj"}
    config, modules = of_adapter(assets, model, "head")
    assert modules == {"embed_tokens", "lm_head"} == set(config["target_modules"])
    assert of_adapter(assets, model, "everything")[1] >= attention | mlp | {"embed_tokens", "lm_head"}
    names = [adapter.name for adapter in MODELS[model].all_adapters]
    scalings = {name: read["lora_alpha"] / read["r"] for name in names for read in [of_adapter(assets, model, name)[0]]}
    assert len(set(scalings.values())) == len(names), scalings


def test_experts_adapters_are_laid_out_as_sglang_reads_them(assets: Path) -> None:
    prefix = "base_model.model.model.layers.1.mlp.experts"
    own = load_file(assets / "tiny-gpt-oss/adapters/experts/adapter_model.safetensors")
    assert len(own) == 2 * 8 * 3 * 2
    assert own[f"{prefix}.7.up_proj.lora_B.weight"].shape == (256, 8)
    joint = load_file(assets / "tiny-gpt-oss/adapters/experts-joint/adapter_model.safetensors")
    assert joint[f"{prefix}.7.gate_up_proj.lora_B.weight"].shape == (512, 8)
    shared = load_file(assets / "tiny-gpt-oss/adapters/shared-outer/adapter_model.safetensors")
    assert {name.removeprefix(f"{prefix}."): tensor.shape for name, tensor in shared.items() if prefix in name} == {
        "gate_up_proj.lora_A.weight": (1, 8, 256),
        "gate_up_proj.lora_B.weight": (8, 512, 8),
        "down_proj.lora_A.weight": (8, 8, 256),
        "down_proj.lora_B.weight": (1, 256, 8),
    }
