"""The cache of synthetic assets: damage of any kind is noticed before use, and mended."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.host.assets import prepare
from kit.paths import cache_folder
from kit.plan import AssetFile
from kit.synthetic.catalogue import MODELS, file_names
from kit.synthetic.files import model_files

MODEL = ("tiny-qwen3",)
MANIFEST = "SHA256SUMS"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, tuple[AssetFile, ...]]:
    monkeypatch.setenv("KIT_CACHE", str(tmp_path / "cache"))
    return prepare(MODEL)


def test_the_catalogue_names_every_file_that_is_made() -> None:
    for name, model in MODELS.items():
        assert file_names([name]) == set(model_files(model))


def test_a_sound_cache_is_used_as_it_is(made: tuple[Path, tuple[AssetFile, ...]]) -> None:
    folder, files = made
    before = folder.stat().st_ino
    assert prepare(MODEL) == (folder, files)
    assert folder.stat().st_ino == before
    assert {file.path for file in files} == file_names(MODEL)


def test_the_folder_of_a_plan_without_models_is_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run beside this one has it mounted."""
    monkeypatch.setenv("KIT_CACHE", str(tmp_path / "cache"))
    folder, files = prepare(())
    before = folder.stat().st_ino
    assert prepare(()) == (folder, ()) == (folder, files)
    assert folder.stat().st_ino == before


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: b"", id="emptied"),
        pytest.param(lambda text: b"".join(text.splitlines(keepends=True)[:2]), id="cut to two lines"),
        pytest.param(lambda text: text[:-30], id="cut within a line"),
        pytest.param(lambda text: text + b"garbage\n", id="a garbage line"),
        pytest.param(lambda text: text + text.splitlines(keepends=True)[0], id="a line twice"),
        pytest.param(lambda text: text + b"0" * 64 + b"  ../../elsewhere\n", id="a file elsewhere"),
        pytest.param(lambda text: b"\xff\xfe", id="no UTF-8"),
        pytest.param(lambda text: None, id="lost"),
    ],
)
def test_a_damaged_manifest_is_made_anew(
    made: tuple[Path, tuple[AssetFile, ...]], damage: Callable[[bytes], bytes | None]
) -> None:
    folder, files = made
    manifest = folder / MANIFEST
    sound = manifest.read_bytes()
    damaged = damage(sound)
    if damaged is None:
        manifest.unlink()
    else:
        manifest.write_bytes(damaged)
    assert prepare(MODEL) == (folder, files)
    assert manifest.read_bytes() == sound


def test_a_flipped_byte_of_a_model_is_mended(made: tuple[Path, tuple[AssetFile, ...]]) -> None:
    folder, files = made
    model = folder / "tiny-qwen3" / "model.safetensors"
    sound = model.read_bytes()
    model.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    assert prepare(MODEL) == (folder, files)
    assert model.read_bytes() == sound


@pytest.mark.parametrize("name", ["tiny-qwen3/pytorch_model.bin", "stray"])
def test_a_file_that_nobody_made_is_damage(made: tuple[Path, tuple[AssetFile, ...]], name: str) -> None:
    folder, files = made
    (folder / name).write_bytes(b"x")
    assert prepare(MODEL) == (folder, files)
    assert not (folder / name).exists()


def test_what_an_interrupted_build_left_is_removed(made: tuple[Path, tuple[AssetFile, ...]]) -> None:
    folder, files = made
    left = folder.parent / ".building-x"
    left.mkdir()
    (folder / MANIFEST).unlink()
    assert prepare(MODEL) == (folder, files)
    assert not left.exists()


def test_all_is_on_the_disk_before_the_folder_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inodes keep across the rename, so those synced before it are compared with what then lies under the name."""
    monkeypatch.setenv("KIT_CACHE", str(tmp_path))
    synced: set[int] = set()
    at_rename: set[int] = set()
    fsync, rename = os.fsync, Path.rename

    def noting_sync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def noting_rename(path: Path, target: Path) -> Path:
        at_rename.update(synced)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(Path, "rename", noting_rename)
    folder, _ = prepare(MODEL)
    assert {path.stat().st_ino for path in (folder, *folder.rglob("*"))} <= at_rename
    assert folder.parent.stat().st_ino in synced


@pytest.mark.parametrize("variable", ["KIT_CACHE", "XDG_CACHE_HOME"])
def test_the_cache_folder_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KIT_CACHE", raising=False)
    monkeypatch.setenv(variable, "here")
    assert cache_folder() == tmp_path / "here" / ("" if variable == "KIT_CACHE" else "kit")
