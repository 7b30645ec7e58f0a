import json
import math
from pathlib import Path

import pytest

pytest.importorskip("torch")

from kit.errors import UsageFault
from kit.plan import SGLangSession
from kit.subjects import Workspace
from kit.subjects.session_adapters import original_adapters
from kit.subjects.sglang_engine import engine_arguments, read_answer, served_model

SESSION = SGLangSession(
    model="tiny-qwen3",
    adapters=("adapter-0", "adapter-1"),
    dtype="float32",
    engine={"device": "cpu", "max_running_requests": 2},
)


def test_an_answer_is_one_value_and_one_token_id_per_entry() -> None:
    served = read_answer([(-1.5, 6, None), (-2.5, 7, None)], 2)
    assert served.logprobs.tolist() == [-1.5, -2.5]
    assert served.tokens == (6, 7)


@pytest.mark.parametrize("entries", [[], [(-1.5, 6, None)], [(-1.5, 6, None), (None, 7, None)]])
def test_what_the_engine_does_not_give_is_nan(entries: list) -> None:
    served = read_answer(entries, 2)
    assert len(served.logprobs) == len(served.tokens) == 2
    assert math.isnan(served.logprobs[1])


def test_what_the_engine_gives_too_much_is_left_out() -> None:
    assert len(read_answer([(-1.0, 2, None)] * 5, 2).logprobs) == 2


def test_the_profile_wins_over_the_defaults() -> None:
    arguments = engine_arguments(SESSION, Path("model"), {"adapter-0": Path("here")})
    assert arguments["max_running_requests"] == 2
    assert arguments["disable_radix_cache"] is True
    assert arguments["lora_paths"] == ["adapter-0=here"]
    assert arguments["max_loras_per_batch"] == 2


def test_a_session_without_adapters_has_no_lora() -> None:
    arguments = engine_arguments(SESSION.model_copy(update={"adapters": ()}), Path("model"), {})
    assert not any("lora" in name for name in arguments)


def test_an_unknown_adapter_names_its_near_match(tmp_path: Path) -> None:
    wrong = SESSION.model_copy(update={"adapters": ("adapter-2",)})
    with pytest.raises(UsageFault, match="did you mean 'adapter-"):
        original_adapters(wrong, Workspace(assets=tmp_path, scratch=tmp_path))


def test_gpt_oss_is_served_with_the_session_s_dtype_declared_and_the_weights_as_they_are(
    assets: Path, tmp_path: Path
) -> None:
    """docs/findings/0030."""
    session = SESSION.model_copy(update={"model": "tiny-gpt-oss", "dtype": "bfloat16"})
    original = assets / "tiny-gpt-oss"
    served = served_model(session, original, tmp_path)
    declared, before = (json.loads((folder / "config.json").read_bytes()) for folder in (served, original))
    assert (declared.pop("dtype"), before.pop("dtype")) == ("bfloat16", "float32")
    assert declared == before
    assert (served / "model.safetensors").resolve() == (original / "model.safetensors").resolve()


def test_other_models_are_served_as_they_are(assets: Path, tmp_path: Path) -> None:
    assert served_model(SESSION, assets / "tiny-qwen3", tmp_path) == assets / "tiny-qwen3"
