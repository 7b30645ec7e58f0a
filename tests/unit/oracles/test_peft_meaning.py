"""What an adapter's files mean, held against peft itself in float64: one linear layer after the other, no model."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kit.oracles.peft_meaning import Meaning, read_meaning
from kit.synthetic.adapter_files import write_variant
from kit.synthetic.adapter_variants import VARIANTS, Right
from kit.synthetic.catalogue import TINY_QWEN3
from kit.synthetic.files import model_files
from kit.synthetic.weights import linear_modules, model_weights

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

SMALL = replace(TINY_QWEN3, hidden=32, heads=2, kv_heads=1, head_dim=16, intermediate=64)
BASE = {name: tensor.astype(np.float64) for name, tensor in model_weights(SMALL).items()}
MODULES = [module.name for module in linear_modules(SMALL)]
COMPARED = [name for name, variant in VARIANTS.items() if variant.right is not Right.REFUSE]
SINGLE_PRECISION = {"init-pissa"}
"""peft decomposes nothing else than float32."""


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    place = f"{SMALL.name}/adapters/adapter-0"
    for path, data in model_files(SMALL).items():
        if path.startswith(place):
            (folder / Path(path).name).write_bytes(data)
    return folder


class Layers(torch.nn.Module):
    """Every module of the base under its own name, without the arithmetic between them."""

    def __init__(self, dtype) -> None:
        super().__init__()
        self.config = {"model_type": "none", "tie_word_embeddings": False}
        for name, tensor in BASE.items():
            parent, part = self._place(name.removesuffix(".weight"))
            weight = torch.tensor(tensor, dtype=dtype)
            if "norm" in part:
                module = torch.nn.RMSNorm(len(weight), dtype=dtype)
            elif part == "embed_tokens":
                module = torch.nn.Embedding(*weight.shape, dtype=dtype)
            else:
                module = torch.nn.Linear(*reversed(weight.shape), bias=False, dtype=dtype)
            module.weight = torch.nn.Parameter(weight.clone())
            parent.add_module(part, module)

    def _place(self, name: str) -> tuple[torch.nn.Module, str]:
        *path, part = name.split(".")
        place = self
        for step in path:
            if not hasattr(place, step):
                place.add_module(step, torch.nn.Module())
            place = getattr(place, step)
        return place, part

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.get_submodule("model.embed_tokens")

    def forward(self, module: str, x):
        return self.get_submodule(module)(x)


def loaded(folder: Path, dtype):
    """What peft makes of the files. The task is left out: it would look for a generating model."""
    config = json.loads((folder / "adapter_config.json").read_bytes())
    config["task_type"], config["auto_mapping"] = None, None
    (folder / "adapter_config.json").write_text(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.PeftModel.from_pretrained(Layers(dtype), folder, autocast_adapter_dtype=False)
    return model.to(dtype).eval()


def meant(meaning: Meaning, module: str, x: np.ndarray) -> np.ndarray:
    y = x @ meaning.weights.get(f"{module}.weight", BASE[f"{module}.weight"]).T
    y = y + meaning.weights.get(f"{module}.bias", 0.0)
    if module in meaning.adapter:
        low = meaning.adapter[module]
        y = y + low.scaling * (x @ low.a.T) @ low.b.T
    return y


@pytest.mark.parametrize("name", COMPARED)
def test_meaning_is_pefts(tmp_path: Path, adapter: Path, name: str) -> None:
    write_variant(name, adapter, tmp_path / name)
    meaning = read_meaning(tmp_path / name, BASE)
    dtype, tolerance = (torch.float32, 1e-5) if name in SINGLE_PRECISION else (torch.float64, 1e-10)
    model = loaded(tmp_path / name, dtype)
    for place, module in enumerate([*MODULES, "lm_head"]):
        x = np.random.default_rng(place).normal(size=(3, BASE[f"{module}.weight"].shape[1]))
        further = {"alora_offsets": [None] * 3} if name == "alora" and module != "lm_head" else {}
        with torch.no_grad():
            answer = model.base_model.model.get_submodule(module)(torch.tensor(x, dtype=dtype), **further).numpy()
        expected = meant(meaning, module, x)
        assert np.max(np.abs(answer - expected)) < tolerance * np.max(np.abs(expected)), module
    tokens = torch.arange(TINY_QWEN3.vocabulary)
    with torch.no_grad():
        rows = model.base_model.model.model.embed_tokens(tokens).numpy()
        norm = model.base_model.model.model.layers.get_submodule("1.input_layernorm").weight.numpy()
    for name_in_base, found in (("model.embed_tokens", rows), ("model.layers.1.input_layernorm", norm)):
        weight = f"{name_in_base}.weight"
        assert np.array_equal(found.astype(np.float64), meaning.weights.get(weight, BASE[weight])), name_in_base
