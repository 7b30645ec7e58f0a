"""Upstream's text tests of several adapters, the whole way a site goes, with a small Llama and its tokenizer in the place of the real ones.

Prompts are upstream's own, settings too but for the profile's: float32, LoRA in plain torch. The texts are held against transformers
and peft, which this file calls itself.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.asset import assets_file, load_assets
from kit.results.model import CaseResult
from kit.subjects.pinned_texts import ends_of, upstream_prompts
from kit.synthetic.catalogue import TINY_LLAMA, AdapterShape
from kit.synthetic.files import model_files
from kit.text_model import load_text_models
from tests.engine.test_real_models import Site
from tests.hub_server import Repository, running, sha256
from tests.jobs import Outcome, outcome

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")

ADAPTERS = ("adapter-0", "adapter-1")
SPECIAL = ("<unk>", "<s>", "</s>")
SHAPE = replace(
    TINY_LLAMA,
    name="llama",
    vocabulary=256 + len(SPECIAL) + 1,
    positions=2048,
    adapters=(AdapterShape("adapter-0", rank=8, alpha=13), AdapterShape("adapter-1", rank=16, alpha=22)),
    further=(),
)
ROW = load_text_models()["llama-2-7b"]
SETTINGS = {"dtype": "float32", "mem_fraction_static": 0.1, "max_total_tokens": 16384}


def write_tokenizer(folder: Path) -> None:
    """Bytes, one token each."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate((*SPECIAL, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    whole.save_pretrained(folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's folder, with the adapters below it; one of them a pickle of old, whose configuration says nothing of rsLoRA."""
    from safetensors.torch import load_file

    folder = tmp_path_factory.mktemp("made")
    for path, data in model_files(SHAPE).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    model = folder / SHAPE.name
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    write_tokenizer(model)
    old = model / "adapters" / "adapter-1"
    torch.save(load_file(old / "adapter_model.safetensors"), old / "adapter_model.bin")
    (old / "adapter_model.safetensors").unlink()
    config = json.loads((old / "adapter_config.json").read_text())
    del config["use_rslora"]
    (old / "adapter_config.json").write_text(json.dumps(config))
    return model


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def site(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "rows").mkdir()
    (folder / "rows" / "assets.toml").write_bytes(assets_file().read_bytes())
    assets = load_assets()
    places = {ROW.model: made} | {a.asset: made / "adapters" / n for a, n in zip(ROW.adapters, ADAPTERS, strict=True)}
    with running() as hub:
        for name, place in places.items():
            files = files_below(place)
            large = {path for path in files if path.endswith((".safetensors", ".bin"))}
            commit = sha256(name.encode())[:40]
            hub.add(Repository(assets[name].type, assets[name].repository, commit, files, large))
        found = Site(folder, hub.url, {})
        for verb in ("lock", "fetch"):
            done = found.kit("assets", verb, *places)
            assert done.returncode == 0, done.stderr
        yield found


def run(site: Site, name: str, case: str, *arguments: str) -> Outcome:
    place = site.folder / name
    settings = [f"--set=real_models.arguments.{key}={value}" for key, value in SETTINGS.items()]
    where = (
        "--profile",
        "cpu",
        "--runtime",
        "local",
        "--output",
        str(place),
        "--case",
        f"multi-lora/llama-2-7b/{case}",
    )
    done = site.kit("run", *where, *settings, *arguments)
    return outcome(place, done.returncode, done.stdout + done.stderr)


@pytest.fixture(scope="module")
def done(site: Site) -> Outcome:
    return run(site, "served", "*")


def case_of(done: Outcome, aspect: str) -> CaseResult:
    (case,) = [case for case in done.result.cases if case.id == f"multi-lora/llama-2-7b/{aspect}"]
    return case


@pytest.mark.parametrize(
    ("identity", "rouge", "prefill"), [("base", 1.0, 0.1), ("adapter-0", 0.9, 0.1), ("adapter-1", 0.9, 0.3)]
)
def test_texts_are_those_of_transformers_within_upstreams_limits(
    done: Outcome, identity: str, rouge: float, prefill: float
) -> None:
    case = case_of(done, f"{identity}-text")
    told = {m.name: m for m in case.measurements}
    assert case.status == "passed", done.text
    assert (told["rouge_l"].value, told["rouge_l"].limit, told["rouge_l"].source) == (1, rouge, "upstream")
    assert (told["prefill_max_abs"].limit, told["prefill_max_abs"].source) == (prefill, "upstream")
    assert 0 < told["prefill_max_abs"].value < 1e-4  # float32 on both sides
    assert "dtype float32 instead of float16" in case.evidence["other_settings_than_upstream"]


def direct(made: Path, identity: str) -> str:
    """The text of upstream's first prompt, by transformers and peft alone."""
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(made, dtype=torch.float32)
    if identity != "base":
        folder = made / "adapters" / identity
        pickled = folder / "adapter_model.bin"
        weights = (
            torch.load(pickled, weights_only=True)
            if pickled.exists()
            else load_file(folder / "adapter_model.safetensors")
        )
        config = LoraConfig.from_pretrained(folder)
        model = get_peft_model(model, config)
        set_peft_model_state_dict(model, {name: tensor.float() for name, tensor in weights.items()})
    tokenizer = AutoTokenizer.from_pretrained(made)
    tokens = tokenizer(upstream_prompts()[0], return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        out = model.generate(
            input_ids=tokens, max_new_tokens=64, do_sample=False, attention_mask=torch.ones_like(tokens)
        )
    return str(tokenizer.decode(out[0, tokens.shape[1] :], skip_special_tokens=True)).strip()


def test_a_split_batch_gives_each_identity_the_text_of_a_direct_computation(done: Outcome, made: Path) -> None:
    case = case_of(done, "batch-splitting")
    assert case.status == "passed", done.text
    assert ends_of(made) == {2}
    served = {row["identity"]: row["text"] for row in case.evidence["texts"]}
    assert served == {identity: direct(made, identity) for identity in ("base", *ADAPTERS)}
    assert len(set(served.values())) == 3


def test_swapped_adapters_are_the_subjects_fault(site: Site) -> None:
    """One case: sixteen batch sizes for each differing text take minutes on a CPU."""
    broken = run(site, "swapped", "adapter-0-text", "--inject", "adapters-swapped")
    assert broken.code == 1
    case = case_of(broken, "adapter-0-text")
    assert case.status == "failed" and {row["verdict"] for row in case.evidence["triage"]} == {"subject fault"}
