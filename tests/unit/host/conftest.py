"""Fixtures of the pinned assets."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_server import Repository, running
from tests.hub_stage import BIG, COMMIT, FILES, TOML, Stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    for name in [name for name in os.environ if name.startswith("HF_") or name.endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.setenv("KIT_CACHE", str(tmp_path / "cache"))
    rows = tmp_path / "rows" / "assets.toml"
    rows.parent.mkdir()
    rows.write_text(TOML)
    with running() as hub:
        large = {BIG, "model-00002.safetensors", "original/pytorch_model.bin"}
        model = hub.add(Repository("model", "someone/Tiny", COMMIT, dict(FILES), large))
        yield Stage(hub, model, rows, tmp_path / "cache")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small-disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
