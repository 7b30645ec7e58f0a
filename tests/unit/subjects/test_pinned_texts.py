"""What a real model's session reads: adapters of old, where a text ends, and upstream's prompts."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from kit.errors import ImageFault
from kit.oracles.reference import read_adapter
from kit.subjects.pinned_texts import ends_of, readable_adapter, upstream_prompts


@pytest.fixture
def old(assets: Path, tmp_path: Path) -> Path:
    """An adapter as they were published in 2023: a pickle, and a configuration that says nothing of rsLoRA."""
    from safetensors.torch import load_file

    original, folder = assets / "tiny-qwen3/adapters/adapter-0", tmp_path / "old"
    folder.mkdir()
    config = json.loads((original / "adapter_config.json").read_text())
    del config["use_rslora"]
    (folder / "adapter_config.json").write_text(json.dumps(config))
    torch.save(load_file(original / "adapter_model.safetensors"), folder / "adapter_model.bin")
    return folder


def test_an_adapter_of_old_is_what_it_would_be_in_safetensors(assets: Path, old: Path, tmp_path: Path) -> None:
    read, wanted = (
        read_adapter(readable_adapter(old, tmp_path / "copy")),
        read_adapter(assets / "tiny-qwen3/adapters/adapter-0"),
    )
    assert read.keys() == wanted.keys()
    for name, low in wanted.items():
        assert np.array_equal(read[name].a, low.a) and np.array_equal(read[name].b, low.b)
        assert read[name].scaling == low.scaling


def test_a_new_adapter_is_read_as_it_lies(assets: Path, tmp_path: Path) -> None:
    original = assets / "tiny-qwen3/adapters/adapter-1"
    copy = readable_adapter(original, tmp_path / "copy")
    assert (copy / "adapter_model.safetensors").resolve() == (original / "adapter_model.safetensors").resolve()


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("code of a pickle has run",))


@pytest.mark.parametrize("content", ["harmful", "rubbish", "nothing"])
def test_a_pickle_that_could_run_code_is_refused(
    old: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str
) -> None:
    path = old / "adapter_model.bin"
    if content == "harmful":
        torch.save({"a": Harmful()}, path)
    elif content == "rubbish":
        path.write_bytes(b"rubbish")
    else:
        path.unlink()
    with pytest.raises(ImageFault, match=r"adapter_model\.bin"):
        readable_adapter(old, tmp_path / "copy")
    assert "has run" not in capfd.readouterr().out


def test_where_a_text_ends(tmp_path: Path) -> None:
    assert ends_of(tmp_path) == frozenset()
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')
    assert ends_of(tmp_path) == {2}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [3, 4]}')
    assert ends_of(tmp_path) == {3, 4}


@pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang is not installed")
def test_upstreams_prompts_are_six() -> None:
    prompts = upstream_prompts()
    assert len(prompts) == 6 and prompts[3] == "Computer science is the study of"
