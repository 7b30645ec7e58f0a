"""The rows of assets.toml: kit's own, and what a row may not say."""

from pathlib import Path

import pytest

from kit.asset import Asset, find_asset, load_assets
from kit.errors import ImageFault, UsageFault

ROW = """
[[asset]]
name = "tiny"
repository = "someone/Tiny"
type = "model"
revision = ""
license = "apache-2.0"
allow = ["*.json"]
used_by = "a case"
files = []
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"
DIGEST = "ab" * 32


def file_row(path: str = "config.json", size: str = "3", sha256: str = DIGEST) -> str:
    return f'files = [{{ path = "{path}", size = {size}, sha256 = "{sha256}" }}]'


def written(folder: Path, text: str) -> Path:
    path = folder / "assets.toml"
    path.write_text(text)
    return path


def locked(row: str) -> str:
    return ROW.replace('revision = ""', f'revision = "{COMMIT}"').replace("files = []", row)


@pytest.mark.parametrize(
    ("name", "repository", "kind"),
    [
        ("qwen3-8b", "Qwen/Qwen3-8B", "model"),
        ("gpt-oss-20b-bf16", "lmsys/gpt-oss-20b-bf16", "model"),
        ("lora-diff-qwen3-8b", "yushengsu/lora-diff-Qwen3-8B", "dataset"),
        ("lora-diff-gpt-oss-20b", "yushengsu/lora-diff-gpt-oss-20b", "dataset"),
        ("wizardlm-llama-lora-7b", "winddude/wizardLM-LlaMA-LoRA-7B", "model"),
        ("llama-2-7b-chat-norwegian-lora", "RuterNorway/Llama-2-7b-chat-norwegian-LoRa", "model"),
    ],
)
def test_kits_own_rows_name_what_upstreams_tests_name(name: str, repository: str, kind: str) -> None:
    asset = find_asset(name)
    assert (asset.repository, asset.type, asset.opt_in) == (repository, kind, False)


def test_llama_2_is_gated_and_the_further_models_are_opt_in() -> None:
    assets = load_assets()
    assert [name for name, asset in assets.items() if asset.gated] == ["llama-2-7b", "llama-3.1-8b-instruct"]
    opt_in = {asset.repository for asset in assets.values() if asset.opt_in and asset.type == "model"}
    assert {"moonshotai/Kimi-K2.5", "Qwen/Qwen3.5-4B", "deepseek-ai/DeepSeek-V3.1-Base"} <= opt_in
    assert len(opt_in) == 13


def test_every_reference_of_kits_own_rows_takes_the_recorded_sample() -> None:
    references = [asset for asset in load_assets().values() if asset.type == "dataset"]
    assert len(references) == 9
    assert all("compare_sample_train_data.pt" in asset.allow for asset in references)


def test_names_in_any_case_and_near_matches() -> None:
    assert find_asset("Qwen3-8B").name == "qwen3-8b"
    with pytest.raises(UsageFault, match=r"unknown asset 'qwen3-8'; did you mean 'qwen3-8b'"):
        find_asset("qwen3-8")


def test_an_unlocked_row_says_what_to_do(tmp_path: Path) -> None:
    asset = load_assets(written(tmp_path, ROW))["tiny"]
    assert (asset.locked, asset.size) == (False, 0)
    with pytest.raises(ImageFault, match="asset tiny is not locked; run 'kit assets lock tiny'"):
        asset.refuse_unlocked()


def test_a_locked_row(tmp_path: Path) -> None:
    asset = load_assets(written(tmp_path, locked(file_row(size="7"))))["tiny"]
    asset.refuse_unlocked()
    assert (asset.locked, asset.size, asset.files[0].sha256) == (True, 7, DIGEST)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ROW.replace('revision = ""', 'revision = "main"'), "revision"),
        (ROW.replace('revision = ""', 'revision = "0123456"'), "revision"),
        (ROW.replace('revision = ""', f'revision = "{COMMIT}"'), "both given or both empty"),
        (ROW.replace("files = []", file_row()), "both given or both empty"),
        (ROW.replace('"model"', '"space"'), "type"),
        (ROW.replace("someone/Tiny", "Tiny"), "repository"),
        (ROW.replace("someone/Tiny", "../Tiny"), "repository"),
        (ROW.replace('allow = ["*.json"]', "allow = []"), "allow"),
        (ROW + 'token = "secret"\n', "'asset.0.token' is unknown"),
        (ROW + ROW, "two assets are called tiny"),
        (locked(file_row("../evil")), "below the asset's folder"),
        (locked(file_row("/etc/passwd")), "below the asset's folder"),
        (locked(file_row("a//b")), "below the asset's folder"),
        (locked(file_row("./a")), "below the asset's folder"),
        (locked(file_row("..\\\\evil")), "below the asset's folder"),
        (locked(file_row("a\\nb")), "below the asset's folder"),
        (locked(file_row(size="-1")), "size"),
        (locked(file_row(sha256="AB" * 32)), "sha256"),
        (
            locked(file_row().replace("]", ", " + file_row().removeprefix("files = ["))),
            "two files are called config.json",
        ),
    ],
)
def test_a_wrong_row_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageFault) as caught:
        load_assets(written(tmp_path, text))
    assert words in str(caught.value)
    assert "assets.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_row_survives_being_written_and_read(tmp_path: Path) -> None:
    asset = load_assets(written(tmp_path, locked(file_row())))["tiny"]
    assert Asset.model_validate_json(asset.model_dump_json()) == asset
