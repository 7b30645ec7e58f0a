import json
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from safetensors.numpy import load_file

from kit.batteries import BATTERIES, lora_models
from kit.check_spec import AdapterFile, BatchText, TrainerLogprobs
from kit.errors import UsageFault
from kit.faults.adapter_catalogue import adapter_must_see
from kit.faults.apply import served_adapters, served_logprobs
from kit.faults.catalogue import FAULTS, expected_red, parse_fault
from kit.faults.kind import Where
from kit.oracles.reference import read_adapter
from kit.plan import InjectedFault
from kit.profile import find_profile

NAMES = ("adapter-0", "adapter-1")


@pytest.fixture
def originals(assets: Path) -> dict[str, Path]:
    return {name: assets / "tiny-qwen3/adapters" / name for name in NAMES}


def contents(folder: Path) -> tuple[dict, dict[str, np.ndarray]]:
    return json.loads((folder / "adapter_config.json").read_text()), load_file(folder / "adapter_model.safetensors")


def test_without_faults_the_engine_gets_the_originals(originals: dict[str, Path], tmp_path: Path) -> None:
    assert served_adapters((), originals, tmp_path) == originals
    assert list(tmp_path.iterdir()) == []


def test_scaling_multiplies_alpha_and_nothing_else(originals: dict[str, Path], tmp_path: Path) -> None:
    served = served_adapters((parse_fault("adapter-scaling=1.1"),), originals, tmp_path)
    for name, alpha in zip(NAMES, (13, 22), strict=True):
        config, tensors = contents(served[name])
        honest, weights = contents(originals[name])
        assert config.pop("lora_alpha") == pytest.approx(1.1 * alpha)
        assert honest.pop("lora_alpha") == alpha
        assert config == honest
        assert all(np.array_equal(tensors[key], weights[key]) for key in weights)


def test_a_missing_adapter_has_no_b(originals: dict[str, Path], tmp_path: Path) -> None:
    served = served_adapters((parse_fault("adapter-missing"),), originals, tmp_path)
    _, tensors = contents(served["adapter-1"])
    assert {bool(np.any(tensor)) for name, tensor in tensors.items() if ".lora_B." in name} == {False}
    assert all(np.any(tensor) for name, tensor in tensors.items() if ".lora_A." in name)


def test_swapped_adapters_are_served_under_each_others_names(originals: dict[str, Path], tmp_path: Path) -> None:
    served = served_adapters((parse_fault("adapters-swapped"),), originals, tmp_path)
    assert served == {"adapter-0": originals["adapter-1"], "adapter-1": originals["adapter-0"]}


def test_faults_add_up(originals: dict[str, Path], tmp_path: Path) -> None:
    both = (parse_fault("adapter-scaling=2"), parse_fault("adapters-swapped"))
    config, _ = contents(served_adapters(both, originals, tmp_path)["adapter-0"])
    assert (config["r"], config["lora_alpha"]) == (16, 44)


def test_a_fault_of_an_unknown_name_is_never_ignored(originals: dict[str, Path], tmp_path: Path) -> None:
    wrong = InjectedFault(name="adapter-scalin", strength=1.1)
    with pytest.raises(UsageFault, match="did you mean 'adapter-scaling'"):
        served_adapters((wrong,), originals, tmp_path)


def test_every_fault_of_the_catalogue_can_be_injected(originals: dict[str, Path], tmp_path: Path) -> None:
    for name, kind in FAULTS.items():
        fault = parse_fault(f"{name}=1.1" if kind.strength_means else name)
        changed = served_adapters((fault,), originals, tmp_path / name) != originals
        assert changed == (kind.acts_on == "adapters"), name
        logprobs = np.arange(5.0)
        same = np.array_equal(served_logprobs((fault,), logprobs), logprobs)
        assert same == (kind.acts_on != "answers"), name


def test_every_fault_of_adapters_alters_an_adapter_that_must_be_red(assets: Path, tmp_path: Path) -> None:
    for name, kind in FAULTS.items():
        if kind.acts_on != "adapters" or name.startswith("adapters-"):
            continue
        model = "tiny-gpt-oss" if name == "adapter-expert-dropped" else "tiny-qwen3"
        whole = "experts" if model == "tiny-gpt-oss" else "everything"
        assert adapter_must_see(name, model, whole), name
        original = assets / model / "adapters" / whole
        served = served_adapters((parse_fault(kind.as_reported),), {whole: original}, tmp_path / name)[whole]
        (config, tensors), (honest_config, honest) = contents(served), contents(original)
        assert tensors.keys() == honest.keys(), name
        assert {key: tensors[key].shape for key in tensors} == {key: honest[key].shape for key in honest}, name
        same = all(np.array_equal(tensors[key], honest[key]) for key in honest)
        assert (config != honest_config) != (not same), name


@pytest.mark.parametrize(
    ("fault", "subject", "adapter", "must"),
    [
        ("adapter-scaling", "tiny-qwen3", "embedding", True),
        ("adapter-head-dropped", "tiny-qwen3", "lm-head", True),
        ("adapter-head-dropped", "tiny-qwen3", "mlp", False),
        ("adapter-value-dropped", "tiny-qwen3", "mlp", False),
        ("adapter-gate-up-swapped", "tiny-gpt-oss", "adapter-0", False),
        ("adapter-rounded", "tiny-qwen3", "adapter-0", True),
        ("adapter-rounded", "tiny-qwen3+bfloat16", "adapter-0", False),
        ("adapter-layer-dropped", "some-real-model", "its-adapter", True),
    ],
)
def test_only_who_has_what_a_fault_alters_must_be_red(fault: str, subject: str, adapter: str, must: bool) -> None:
    assert adapter_must_see(fault, subject, adapter) is must


def test_the_catalogue_covers_every_part_of_a_serving_stack() -> None:
    assert len(FAULTS) >= 60
    assert {kind.where for kind in FAULTS.values()} == set(get_args(Where))
    for kind in FAULTS.values():
        assert (kind.strength_means is None) == (kind.reported is None) == (kind.neutral is None), kind.name
        assert kind.report is None or re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", kind.report), kind.name


def altered(originals: dict[str, Path], folder: Path, text: str) -> dict[str, np.ndarray]:
    """The tensors of adapter-0 that a fault changes, by name after ``base_model.model.model.``."""
    served = served_adapters((parse_fault(text),), originals, folder)["adapter-0"]
    (_, tensors), (_, honest) = contents(served), contents(originals["adapter-0"])
    assert tensors.keys() == honest.keys()
    return {
        name.removeprefix("base_model.model.model."): tensor
        for name, tensor in tensors.items()
        if not np.array_equal(tensor, honest[name])
    }


def test_a_dropped_layer_is_the_last_one(originals: dict[str, Path], tmp_path: Path) -> None:
    found = altered(originals, tmp_path, "adapter-layer-dropped")
    assert len(found) == 7
    assert all(
        name.startswith("layers.1.") and ".lora_B." in name and not tensor.any() for name, tensor in found.items()
    )


def test_a_dropped_value_is_one_module(originals: dict[str, Path], tmp_path: Path) -> None:
    found = altered(originals, tmp_path, "adapter-value-dropped")
    assert list(found) == ["layers.0.self_attn.v_proj.lora_B.weight"]


def test_query_and_key_are_exchanged_as_far_as_shapes_allow(originals: dict[str, Path], tmp_path: Path) -> None:
    _, honest = contents(originals["adapter-0"])
    found = altered(originals, tmp_path, "adapter-query-key-swapped")
    assert len(found) == 4
    for name, tensor in found.items():
        other = name.replace("q_proj", "?").replace("k_proj", "q_proj").replace("?", "k_proj")
        assert ".lora_A." in name and np.array_equal(tensor, honest[f"base_model.model.model.{other}"])


def test_a_transposed_query_is_the_transpose_of_its_change(originals: dict[str, Path], tmp_path: Path) -> None:
    _, honest = contents(originals["adapter-0"])
    found = altered(originals, tmp_path, "adapter-query-transposed")
    assert len(found) == 4
    prefix = "layers.1.self_attn.q_proj.lora"
    change = found[f"{prefix}_B.weight"] @ found[f"{prefix}_A.weight"]
    right = honest[f"base_model.model.model.{prefix}_B.weight"] @ honest[f"base_model.model.model.{prefix}_A.weight"]
    np.testing.assert_allclose(change, right.T, rtol=0, atol=1e-7)


def test_a_query_that_is_not_square_is_read_in_the_other_order(assets: Path, tmp_path: Path) -> None:
    originals = {"adapter-0": assets / "tiny-llama/adapters/adapter-0"}
    found = altered(originals, tmp_path, "adapter-query-transposed")
    _, honest = contents(originals["adapter-0"])
    name = "layers.0.self_attn.q_proj.lora_B.weight"
    assert np.array_equal(found[name].T.ravel(), honest[f"base_model.model.model.{name}"].ravel())


def test_the_root_of_the_rank_is_mistaken_either_way(assets: Path, tmp_path: Path) -> None:
    originals = {name: assets / "tiny-qwen3/adapters" / name for name in ("adapter-0", "rslora")}
    served = served_adapters((parse_fault("adapter-scaling-root"),), originals, tmp_path)
    scalings = {name: read_adapter(folder)["model.layers.0.mlp.up_proj"].scaling for name, folder in served.items()}
    assert scalings == {"adapter-0": pytest.approx(13 / 8**0.5), "rslora": pytest.approx(5 / 8)}


@pytest.mark.parametrize(
    ("text", "answer"),
    [("position-shifted", [0, 1, 3, 3, 4]), ("positions-shifted", [4, 0, 1, 2, 3])],
)
def test_positions_are_shifted_in_the_answer(text: str, answer: list[int]) -> None:
    assert served_logprobs((parse_fault(text),), np.arange(5.0)).tolist() == answer
    for short in ([], [1.0]):
        assert served_logprobs((parse_fault(text),), np.array(short)).tolist() == short


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adapter-scalng=1.1", "unknown fault 'adapter-scalng'; did you mean 'adapter-scaling'"),
        ("adapter-scaling", "needs a strength"),
        ("adapter-scaling=", "needs a strength"),
        ("adapter-scaling=abc", "found 'abc'"),
        ("adapter-scaling=nan", "found 'nan'"),
        ("adapter-scaling=inf", "found 'inf'"),
        ("adapter-scaling=-1", "above 0"),
        ("adapter-scaling=1", "changes nothing"),
        ("adapter-missing=2", "takes no strength"),
    ],
)
def test_a_wrong_fault_is_told_on_the_host(text: str, message: str) -> None:
    with pytest.raises(UsageFault) as caught:
        parse_fault(text)
    assert message in str(caught.value)


BASE_ASPECTS = {
    "base",
    "base-decode",
    "base-again",
    "vocabulary-edges",
    "target-modules",
    "class-all-base",
    "adapter-0-repeated",
    "life-reload",
    "identities-reload",
}


def test_exactly_the_cases_with_an_adapter_are_expected_to_be_red() -> None:
    planned = [p.case for cases in BATTERIES.values() for p in cases(find_profile("cpu"))]
    fault = (parse_fault("adapter-scaling=1.1"),)
    red = {case.id for case in planned if expected_red(fault, case)}
    # Files of adapters are made from the originals, which faults leave alone; a text may be the same under a small fault.
    unforced = AdapterFile | BatchText
    of_engines = {case.id for case in planned if case.battery != "kernels" and not isinstance(case.spec, unforced)}
    without = {case.id for case in planned if case.id.rsplit("/")[-1] in BASE_ASPECTS}
    assert without and red == of_engines - without
    everywhere = {case.id for case in planned if expected_red((parse_fault("positions-shifted"),), case)}
    unjudged = ("/target-modules", "/adapter-0-repeated")
    assert everywhere == {name for name in of_engines if not name.endswith(unjudged)}
    assert not any(expected_red((), case) for case in planned)


@pytest.mark.parametrize(
    ("text", "red"), [("adapter-missing", True), ("adapter-scaling=1.1", False), ("adapters-swapped", False)]
)
def test_upstreams_test_must_see_that_its_adapter_is_missing(text: str, red: bool) -> None:
    """Its limit passes a scaled adapter of little effect, so that nothing follows from one; and it has no other to swap with."""
    planned = [p.case for p in lora_models.cases(find_profile("h200"))]
    (real,) = [case for case in planned if isinstance(case.spec, TrainerLogprobs)]
    assert expected_red((parse_fault(text),), real) is red
