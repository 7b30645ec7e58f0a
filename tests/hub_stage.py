"""A hub, a row and a cache for tests of the pinned assets."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kit.asset import Asset, load_assets
from kit.errors import ExitCode, KitError
from kit.host.asset_cache import (
    Silent,
)
from kit.host.asset_fetch import fetch_asset
from kit.host.asset_lock import lock_asset, write_asset
from kit.host.hub import Hub
from tests.hub_server import FakeHub, Repository

COMMIT = "5f3c1e0d9b8a7f6e5d4c3b2a190807060504030f"
TOKEN = "hf_" + "Zx9" * 11
BIG = "model-00001.safetensors"
BLOCK = 10 * 2**20  # huggingface_hub writes in blocks of 10 MiB
FILES = {
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "README.md": b"read me",
    "config.json": b'{"model_type": "tiny"}',
    "empty.json": b"",
    "sub/folder name.json": b"[1]",
    BIG: bytes(range(256)) * 4096 * 25,  # 25 MiB
    "model-00002.safetensors": b"\1" * 70_000,
    "original/pytorch_model.bin": b"pickle",
}
WANTED = {path: content for path, content in FILES.items() if path.endswith((".json", ".safetensors"))}
TOML = """# A comment on top.

[[asset]]
name = "other"
repository = "someone/other" # not this one
type = "dataset"
revision = ""
license = "mit"
allow = ["*"]
used_by = "nobody"
files = []

# The one that the tests use.
[[asset]]
name = "tiny"
repository = "someone/Tiny"
type = "model"
revision = "" # filled in by lock
license = "apache-2.0"
allow = ["model*.safetensors", "*.json"]
used_by = "tests"
files = [] # the same

# A last comment.
"""


class Lines(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


@dataclass
class Stage:
    """A hub with one model, rows for it, and an empty cache."""

    hub: FakeHub
    model: Repository
    rows: Path
    cache: Path

    @property
    def asset(self) -> Asset:
        return load_assets(self.rows)["tiny"]

    def lock(self, revision: str = "main") -> Asset:
        asset = lock_asset(self.asset, Hub(self.hub.url), revision)
        write_asset(self.rows, asset)
        self.hub.seen.clear()
        return asset

    def fetch(self) -> list[str]:
        display = Lines()
        fetch_asset(self.asset, partial(Hub, self.hub.url), display)
        return display.lines

    def kit(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=120, env=self.environment(environment)
        )

    def command(self, *arguments: str) -> list[str]:
        """``kit`` with these rows in the place of its own."""
        code = (
            f"import pathlib, kit.asset; kit.asset.data_folder = lambda _: pathlib.Path({str(self.rows.parent)!r})\n"
            "from kit.cli import main; main()"
        )
        return [sys.executable, "-c", code, *arguments]

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        return os.environ | {"HF_ENDPOINT": self.hub.url} | (more or {})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(act: Callable[[], object], kind: type[KitError], code: ExitCode, *words: str) -> None:
    with pytest.raises(kind) as caught:
        act()
    assert caught.value.exit_code is code
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
