import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file

from kit.errors import UsageFault
from kit.oracles.peft_meaning import read_tensors
from kit.synthetic.adapter_files import CONFIG, PAYLOAD_RAN, WEIGHTS, read_parts, variant_files, write_variant
from kit.synthetic.adapter_variants import VARIANTS, Operation, Right, find_variant

UNCHANGED = {"loaded-name", "name-never-loaded"}
"""What is asked is unusual there, not the file."""


@pytest.fixture(scope="module")
def sound(assets: Path) -> Path:
    return assets / "tiny-qwen3/adapters/adapter-0"


def files(name: str, sound: Path, folder: Path = Path("/nowhere")) -> dict[str, bytes]:
    return variant_files(name, read_parts(sound), folder)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_differs_from_the_sound_adapter_and_is_the_same_each_time(sound: Path, name: str) -> None:
    made = files(name, sound)
    assert made == files(name, sound)
    config, weights = json.loads((sound / CONFIG).read_bytes()), load_file(sound / WEIGHTS)
    try:
        same_config = json.loads(made[CONFIG]) == config
        same_weights = made[WEIGHTS] == (sound / WEIGHTS).read_bytes()
    except (KeyError, ValueError):
        same_config = same_weights = False
    assert (same_config and same_weights and set(made) == {CONFIG, WEIGHTS}) == (name in UNCHANGED)
    assert len(weights) == 28


def test_a_refusal_can_be_clear_wherever_it_may_come() -> None:
    for variant in VARIANTS.values():
        assert bool(variant.causes) == (variant.right is not Right.HONOUR), variant.name
        assert all(cause == cause.lower() for cause in variant.causes)
        assert not variant.like or VARIANTS[variant.like].like == ""


def test_what_stands_for_others_comes_before_them() -> None:
    order = [*VARIANTS]
    for variant in VARIANTS.values():
        assert not variant.like or order.index(variant.like) < order.index(variant.name)


@pytest.mark.parametrize("name", ["weights-truncated", "weights-garbage", "weights-empty"])
def test_damaged_weights_cannot_be_read(sound: Path, tmp_path: Path, name: str) -> None:
    write_variant(name, sound, tmp_path / name)
    with pytest.raises(SafetensorError):
        load_file(tmp_path / name / WEIGHTS)


@pytest.mark.parametrize("name", ["config-cut"])
def test_a_damaged_configuration_cannot_be_read(sound: Path, name: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(files(name, sound)[CONFIG])


@pytest.mark.parametrize("name", ["file-bfloat16", "file-float16", "file-float64"])
def test_other_dtypes_hold_the_same_values(sound: Path, tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file as load_torch

    write_variant(name, sound, tmp_path / name)
    found, ours = load_torch(tmp_path / name / WEIGHTS), read_tensors(tmp_path / name / WEIGHTS)
    for tensor_name, expected in load_file(sound / WEIGHTS).items():
        assert found[tensor_name].dtype == getattr(torch, name.removeprefix("file-"))
        assert np.array_equal(found[tensor_name].float().numpy(), expected)
        assert np.array_equal(ours[tensor_name], expected)


def test_the_pickle_runs_where_it_is_unpickled(sound: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pickle"
    write_variant("pickle", sound, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["adapter_config.json", "adapter_model.bin"]
    pickle.loads((folder / "adapter_model.bin").read_bytes())
    assert (folder / PAYLOAD_RAN).exists()


def test_nothing_lies_where_the_path_is_missing(sound: Path, tmp_path: Path) -> None:
    write_variant("no-folder", sound, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_fields_are_pefts(sound: Path) -> None:
    """A field that no longer exists, or that is new, must be looked at."""
    config = pytest.importorskip("peft").LoraConfig
    written = json.loads(files("as-peft-writes-it", sound)[CONFIG])
    known = config().to_dict().keys()
    assert written.keys() == known


def test_an_unknown_variant_names_its_near_match(sound: Path) -> None:
    with pytest.raises(UsageFault, match="did you mean 'rslora'"):
        files("rslor", sound)


def test_operations() -> None:
    assert find_variant("loaded-name").operation is Operation.LOAD_AGAIN
    assert find_variant("name-never-loaded").operation is Operation.SERVE
