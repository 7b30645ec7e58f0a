import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from kit.errors import EnvironmentFault, UsageFault
from kit.synthetic.files import materialise

ADAPTERS = "tiny-qwen3/adapters"
RECORDED = {
    f"{ADAPTERS}/adapter-0/adapter_config.json": ("64bb6cb9f204bfeaed03a689ee8a2d73b5d195f970482cb0ffc72f0caa3713dd"),
    f"{ADAPTERS}/adapter-0/adapter_model.safetensors": (
        "db1eb8faef00a9ed6dac0307e8118afddbc3e4e8192d32df12cfb7dc693b04eb"
    ),
    f"{ADAPTERS}/adapter-1/adapter_config.json": ("108290d8451e7ca73c404ffd27147e45b40766340bbed063b63528b0bdcc1db4"),
    f"{ADAPTERS}/adapter-1/adapter_model.safetensors": (
        "7e030c46ea8daa1e353e73426ac3f03ea01cd30e09b948de079404ef79917dff"
    ),
    "tiny-qwen3/config.json": "494f2ff49c5b031ebb2d659dec805446b90b66917d680903b11d26d6330c85a6",
    "tiny-qwen3/model.safetensors": "428bc09c26d9049d0a13582ca0a2f6cb4f38c7ad600dfd2e0e8e5193cd2cce7a",
}


def test_files_are_byte_for_byte_those_recorded(assets: Path) -> None:
    found = {a.path: a.sha256 for a in materialise(["tiny-qwen3"], assets)}
    assert found == RECORDED
    for path, digest in found.items():
        assert hashlib.sha256((assets / path).read_bytes()).hexdigest() == digest


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
