"""Lock, fetch and verify with the real huggingface_hub, against a hub on this machine."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit.asset import Asset, PinnedFile, load_assets
from kit.errors import EnvironmentFault, ExitCode, ImageFault, KitError, UsageFault
from kit.host import asset_fetch
from kit.host.asset_cache import (
    MARKER,
    AssetFolder,
    Silent,
    State,
    asset_folder,
    require_assets,
    state_of,
    verify_asset,
)
from kit.host.asset_fetch import fetch_asset
from kit.host.asset_lock import lock_asset, write_asset
from kit.host.hub import Hub
from kit.results.model import Mode
from tests.hub_server import FakeHub, Repository, running, sha256

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


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(act: Callable[[], object], kind: type[KitError], code: ExitCode, *words: str) -> None:
    with pytest.raises(kind) as caught:
        act()
    assert caught.value.exit_code is code
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_lock_records_commit_sizes_and_hashes_and_changes_nothing_else(stage: Stage) -> None:
    stage.lock()
    asset = stage.asset
    assert asset.revision == COMMIT
    assert {(f.path, f.size, f.sha256) for f in asset.files} == {(p, len(c), sha256(c)) for p, c in WANTED.items()}
    text = stage.rows.read_text()
    for line in TOML.splitlines():
        if "filled in by lock" not in line and "the same" not in line:
            assert line in text.splitlines()
    assert f'revision = "{COMMIT}" # filled in by lock' in text
    assert "] # the same" in text
    assert not load_assets(stage.rows)["other"].locked


def test_lock_again_changes_nothing_and_a_new_commit_is_one_edit(stage: Stage) -> None:
    asset = stage.lock()
    before = stage.rows.read_text()
    assert write_asset(stage.rows, lock_asset(asset, Hub(stage.hub.url), COMMIT)) is False
    assert stage.rows.read_text() == before
    stage.model.files["config.json"] = b"{}"
    stage.model.commit = "a" * 40
    stage.lock()
    after = stage.rows.read_text()
    assert after != before
    assert after.replace("a" * 40, COMMIT).replace(
        f'size = 2, sha256 = "{sha256(b"{}")}"', f'size = 22, sha256 = "{sha256(FILES["config.json"])}"'
    ) == before  # fmt: skip


def test_lock_downloads_only_what_the_hub_gives_no_hash_for(stage: Stage) -> None:
    lock_asset(stage.asset, Hub(stage.hub.url), "main")
    asked = {seen.path.split(f"/resolve/{COMMIT}/")[1] for seen in stage.hub.seen if "/resolve/" in seen.path}
    assert asked == {"config.json", "empty.json", "sub/folder name.json"}


def test_lock_refuses_a_small_file_that_is_not_what_the_listing_says(stage: Stage) -> None:
    stage.model.served["config.json"] = b'{"model_type": "evil"}'
    refused(stage.lock, ImageFault, ExitCode.IMAGE, "config.json is not what the hub's own listing says")


def test_lock_refuses_names_that_leave_the_folder(stage: Stage) -> None:
    stage.model.files["../../evil.json"] = b"{}"
    refused(stage.lock, ImageFault, ExitCode.IMAGE, "below the asset's folder")
    assert stage.rows.read_text() == TOML


def test_lock_refuses_globs_that_match_nothing(stage: Stage) -> None:
    stage.model.files = {"README.md": b"x"}
    refused(stage.lock, ImageFault, ExitCode.IMAGE, "no file of someone/Tiny", "correct 'allow'")


def test_a_row_that_cannot_be_edited_is_left_as_it_is(stage: Stage) -> None:
    text = TOML.replace('revision = "" # filled in by lock\n', "")
    stage.rows.write_text(text)
    refused(stage.lock, ImageFault, ExitCode.IMAGE, "'revision = \"\"'")
    assert stage.rows.read_text() == text


def test_fetch_brings_exactly_the_locked_files(stage: Stage) -> None:
    asset = stage.lock()
    lines = stage.fetch()
    place = AssetFolder(asset)
    assert contents(place.files) == WANTED
    assert lines == ["tiny: complete, 5 of 5 files fetched, every SHA-256 is right"]
    assert sorted(path.name for path in place.home.iterdir()) == [MARKER, "files"]
    check = subprocess.run(["sha256sum", "-c", f"../{MARKER}"], cwd=place.files, capture_output=True, text=True)
    assert (check.returncode, check.stdout.count(": OK")) == (0, 5)
    assert state_of(asset) is State.READY
    assert asset_folder("Tiny", stage.rows) == place.files
    assert all(f"/{COMMIT}/" in seen.path for seen in stage.hub.seen if "/resolve/" in seen.path)


def test_a_complete_asset_makes_no_request(stage: Stage) -> None:
    stage.lock()
    stage.fetch()
    stage.hub.seen.clear()
    assert stage.fetch() == ["tiny: complete, nothing to fetch"]
    fetch_asset(stage.asset, lambda: pytest.fail("a hub was made for a complete asset"), Silent())
    assert stage.hub.seen == []


def test_a_dataset_comes_from_where_datasets_lie(stage: Stage) -> None:
    stage.hub.add(Repository("dataset", "someone/other", COMMIT, {"a.pt": b"sample"}, {"a.pt"}))
    other = lock_asset(load_assets(stage.rows)["other"], Hub(stage.hub.url), "main")
    assert contents(fetch_asset(other, partial(Hub, stage.hub.url), Silent())) == {"a.pt": b"sample"}
    assert any(seen.path.startswith("/datasets/someone/other/resolve/") for seen in stage.hub.seen)


def test_an_interrupted_download_goes_on_where_it_stopped(stage: Stage) -> None:
    asset = stage.lock()
    stage.hub.breaks[BIG], stage.hub.down = 2 * BLOCK + 4096, True
    refused(stage.fetch, EnvironmentFault, ExitCode.ENVIRONMENT, "the hub answers 503", "try again")
    place = AssetFolder(asset)
    assert not (place.files / BIG).exists()
    assert not place.marker.exists()
    assert state_of(asset) is State.UNVERIFIED
    [part] = [path for path in place.parts.iterdir() if path.name.startswith(BIG)]
    assert part.read_bytes() == FILES[BIG][: 2 * BLOCK]
    stage.hub.down = False
    stage.hub.seen.clear()
    stage.fetch()
    assert contents(place.files) == WANTED
    [seen] = stage.hub.contents(sha256(FILES[BIG]))
    assert (seen.range, seen.encoding) == (
        f"bytes={2 * BLOCK}-",
        "identity",
    )  # a position in compressed bytes means nothing


def test_a_cut_within_one_fetch_goes_on_by_itself(stage: Stage) -> None:
    asset = stage.lock()
    stage.hub.breaks[BIG] = BLOCK + 4096
    stage.fetch()
    assert contents(AssetFolder(asset).files) == WANTED
    ranges = [seen.range for seen in stage.hub.contents(sha256(FILES[BIG]))]
    assert ranges == [None, f"bytes={BLOCK}-"]


def test_a_killed_fetch_leaves_no_half_file_under_its_name_and_is_resumed(stage: Stage) -> None:
    asset = stage.lock()
    stage.hub.stalls[BIG] = BLOCK + 4096
    with subprocess.Popen(stage.command("assets", "fetch", "tiny"), env=stage.environment()) as job:
        place = AssetFolder(asset)
        assert stage.hub.stalled.wait(60)
        part = place.part(next(file for file in asset.files if file.path == BIG))
        while not (part.is_file() and part.stat().st_size == BLOCK):
            assert job.poll() is None
        job.send_signal(signal.SIGKILL)
    stage.hub.go_on.set()
    assert not (place.files / BIG).exists()
    assert not place.marker.exists()
    stage.hub.seen.clear()
    done = stage.kit("assets", "fetch", "tiny")
    assert done.returncode == 0, done.stderr
    assert contents(place.files) == WANTED
    assert [seen.range for seen in stage.hub.contents(sha256(FILES[BIG]))] == [f"bytes={BLOCK}-"]


def test_a_server_that_ignores_ranges_sends_the_whole_file_again(stage: Stage) -> None:
    asset = stage.lock()
    stage.hub.breaks[BIG], stage.hub.down = BLOCK + 4096, True
    with pytest.raises(EnvironmentFault):
        stage.fetch()
    stage.hub.down, stage.hub.ignores_ranges = False, True
    stage.fetch()
    assert contents(AssetFolder(asset).files) == WANTED


def test_a_damaged_part_of_an_earlier_fetch_is_thrown_away(stage: Stage) -> None:
    asset = stage.lock()
    place = AssetFolder(asset)
    place.parts.mkdir(parents=True)
    file = next(file for file in asset.files if file.path == "model-00002.safetensors")
    place.part(file).write_bytes(b"\2" * 60_000)
    stage.fetch()
    assert contents(place.files) == WANTED


@pytest.mark.parametrize(
    ("path", "served", "words"),
    [
        ("model-00002.safetensors", b"\2" * 70_000, "SHA-256"),
        ("config.json", b'{"model_type": "evil"}', "SHA-256"),
        ("config.json", b"{}", "another size"),
        ("model-00002.safetensors", b"\1" * 70_001, "another size"),
        ("model-00002.safetensors", b"\1" * 69_999, "another size"),
    ],
)
def test_a_file_that_is_not_the_locked_one_is_refused_and_named(
    stage: Stage, path: str, served: bytes, words: str
) -> None:
    asset = stage.lock()
    stage.model.served[path] = served
    refused(stage.fetch, ImageFault, ExitCode.IMAGE, path, words, "kit assets lock tiny")
    place = AssetFolder(asset)
    assert not (place.files / path).exists()
    assert not place.marker.exists()
    assert not [part for part in place.parts.iterdir() if part.name.startswith(path)]
    assert state_of(asset) is not State.READY
    del stage.model.served[path]
    stage.fetch()
    assert contents(place.files) == WANTED


def test_a_hub_that_sends_without_end_fills_no_disk(stage: Stage) -> None:
    stage.lock()
    path = "model-00002.safetensors"
    stage.model.served[path] = FILES[path] + bytes(3 * BLOCK)
    grown: list[int] = []

    class Watching(Silent):
        def advance(self, file: PinnedFile, count: int) -> None:
            if file.path == path:
                grown.append(count)

    with pytest.raises(ImageFault, match="another size"):
        fetch_asset(stage.asset, partial(Hub, stage.hub.url), Watching())
    assert sum(count for count in grown if count > 0) <= len(FILES[path])


@pytest.mark.parametrize("token", ["", TOKEN])
def test_a_gated_asset_says_to_accept_the_licence(stage: Stage, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.lock()
    monkeypatch.setenv("HF_TOKEN", token)
    stage.model.token = "hf_" + "another" * 5
    words = "does not give it with the token in HF_TOKEN (403)" if token else "does not give it without HF_TOKEN (401)"
    refused(stage.fetch, ImageFault, ExitCode.IMAGE, words, "accept the licence", "set HF_TOKEN", "someone/Tiny")


def test_the_token_goes_to_the_hub_and_to_no_other_host(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    stage.model.token = TOKEN
    asset = stage.lock()
    stage.fetch()
    assert contents(AssetFolder(asset).files) == WANTED
    to_hub = {seen.authorization for seen in stage.hub.seen if "/cdn/" not in seen.path}
    to_store = {seen.authorization for seen in stage.hub.seen if "/cdn/" in seen.path}
    assert (to_hub, to_store) == ({f"Bearer {TOKEN}"}, {None})


def test_a_token_on_disk_is_not_used(stage: Stage) -> None:
    home = Path(os.environ["HF_HOME"])
    home.mkdir()
    (home / "token").write_text(TOKEN)
    done = stage.kit("assets", "lock", "tiny")
    assert done.returncode == 0, done.stderr
    assert {seen.authorization for seen in stage.hub.seen} == {None}


def test_a_token_that_no_header_can_carry_is_one_line(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_se\u0441ret\nX: y")
    with pytest.raises(UsageFault, match="HF_TOKEN holds signs that no token has") as caught:
        Hub(stage.hub.url)
    assert "ret" not in str(caught.value).replace("set it", "")


def test_a_revision_repository_or_file_that_is_gone(stage: Stage) -> None:
    asset = stage.lock()
    refused(lambda: stage.lock("v9"), ImageFault, ExitCode.IMAGE, "has no revision 'v9'")
    stage.model.commit = "b" * 40
    refused(stage.fetch, ImageFault, ExitCode.IMAGE, f"has no revision '{COMMIT}'", "kit assets lock tiny")
    stage.model.commit = COMMIT
    del stage.model.files["config.json"]
    refused(stage.fetch, ImageFault, ExitCode.IMAGE, "has no file config.json")
    stage.hub.repositories.clear()
    refused(stage.fetch, ImageFault, ExitCode.IMAGE, "the hub knows no model someone/Tiny")
    assert state_of(asset) is State.UNVERIFIED


def test_no_network_and_no_hub(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.lock()
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _seconds: None)
    nowhere = partial(Hub, "http://127.0.0.1:9")
    refused(
        lambda: fetch_asset(stage.asset, nowhere, Silent()), EnvironmentFault, ExitCode.ENVIRONMENT, "cannot be reached", "127.0.0.1"
    )  # fmt: skip
    refused(lambda: nowhere().commit(stage.asset, "main"), EnvironmentFault, ExitCode.ENVIRONMENT, "cannot be reached")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused(stage.fetch, EnvironmentFault, ExitCode.ENVIRONMENT, "HF_HUB_OFFLINE")
    monkeypatch.undo()


@pytest.mark.parametrize("body", [b"<html>Log in to the WLAN</html>", b"[]", b'{"sha": "main"}', b"{}"])
def test_what_is_no_hub_is_told(stage: Stage, body: bytes) -> None:
    stage.hub.status, stage.hub.body = 200, body
    refused(stage.lock, EnvironmentFault, ExitCode.ENVIRONMENT, "does not speak the hub's language", "HF_ENDPOINT")


def test_too_little_space_is_told_before_anything_is_asked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.lock()
    needed = sum(map(len, WANTED.values()))
    monkeypatch.setattr(asset_fetch.shutil, "disk_usage", lambda _: SimpleNamespace(free=needed - 1))
    refused(stage.fetch, EnvironmentFault, ExitCode.ENVIRONMENT, f"{needed:,}", f"{needed - 1:,} free", "KIT_CACHE")
    assert stage.hub.seen == []
    monkeypatch.setattr(asset_fetch.shutil, "disk_usage", lambda _: SimpleNamespace(free=needed))
    stage.fetch()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small-disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_fills_up_during_the_download(
    stage: Stage, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = stage.lock()
    monkeypatch.setenv("KIT_CACHE", str(small_disk))
    refused(stage.fetch, EnvironmentFault, ExitCode.ENVIRONMENT, "bytes more", "free")
    monkeypatch.setattr(asset_fetch.shutil, "disk_usage", lambda _: SimpleNamespace(free=2**40))
    refused(stage.fetch, EnvironmentFault, ExitCode.ENVIRONMENT, f"the disk of {small_disk}", "is full", "KIT_CACHE")
    place = AssetFolder(asset)
    assert not (place.files / BIG).exists()
    assert not place.marker.exists()
    part = place.part(next(file for file in asset.files if file.path == BIG))
    assert FILES[BIG].startswith(part.read_bytes())
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    stage.fetch()
    assert contents(place.files) == WANTED


def test_a_device_that_is_full(stage: Stage) -> None:
    asset = stage.lock()
    place = AssetFolder(asset)
    place.parts.mkdir(parents=True)
    place.part(next(file for file in asset.files if file.path == "config.json")).symlink_to("/dev/full")
    refused(stage.fetch, EnvironmentFault, ExitCode.ENVIRONMENT, "is full")


def test_a_cache_that_cannot_be_made(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.lock()
    monkeypatch.setenv("KIT_CACHE", "/proc/sys/kit")
    refused(stage.fetch, EnvironmentFault, ExitCode.ENVIRONMENT, "KIT_CACHE")


def test_verify_works_offline_and_a_copied_cache_is_proved_by_it(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = stage.lock()
    stage.fetch()
    stage.hub.seen.clear()
    assert verify_asset(asset, Silent()) == AssetFolder(asset).files
    shutil.copytree(stage.cache, tmp_path / "carried", copy_function=shutil.copy)  # without times
    monkeypatch.setenv("KIT_CACHE", str(tmp_path / "carried"))
    marker = AssetFolder(asset).marker
    os.utime(marker, ns=(0, 0))
    assert state_of(asset) is State.UNVERIFIED
    refused(
        lambda: asset_folder("tiny", stage.rows), ImageFault, ExitCode.IMAGE, "not verified", "kit assets verify tiny"
    )
    done = stage.kit("assets", "verify", HF_HUB_OFFLINE="1")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["tiny: 5 files, every SHA-256 is right"]), done.stderr
    assert asset_folder("tiny", stage.rows).is_relative_to(tmp_path / "carried")
    assert stage.hub.seen == []


def test_a_changed_file_in_the_cache_is_found_named_and_mended(stage: Stage) -> None:
    asset = stage.lock()
    stage.fetch()
    place = AssetFolder(asset)
    config = place.files / "config.json"
    config.write_bytes(FILES["config.json"].replace(b"tiny", b"evil"))
    assert state_of(asset) is State.UNVERIFIED
    refused(
        lambda: verify_asset(asset, Silent()),
        ImageFault,
        ExitCode.IMAGE,
        "config.json has SHA-256",
        "kit assets fetch tiny",
    )
    os.utime(config, ns=(0, 0))
    assert state_of(asset) is State.READY  # the dates lie, the content does not
    refused(lambda: verify_asset(asset, Silent()), ImageFault, ExitCode.IMAGE, "config.json has SHA-256")
    stage.hub.seen.clear()
    lines = stage.fetch()
    assert "config.json has SHA-256" in lines[0]
    assert contents(place.files) == WANTED
    assert {seen.path.rsplit("/", 1)[1] for seen in stage.hub.seen} == {"config.json"}


def test_a_file_too_many_or_too_few_is_found(stage: Stage) -> None:
    asset = stage.lock()
    refused(lambda: verify_asset(asset, Silent()), ImageFault, ExitCode.IMAGE, "not in the cache", "kit assets fetch")
    stage.fetch()
    files = AssetFolder(asset).files
    (files / "model-00003.safetensors").write_bytes(b"an extra layer")
    assert state_of(asset) is State.UNVERIFIED
    refused(
        lambda: verify_asset(asset, Silent()), ImageFault, ExitCode.IMAGE, "model-00003.safetensors is not part of it"
    )
    assert "removed" in stage.fetch()[0]
    (files / BIG).unlink()
    refused(lambda: verify_asset(asset, Silent()), ImageFault, ExitCode.IMAGE, f"{BIG} is missing")
    stage.fetch()
    assert contents(files) == WANTED


def test_two_fetches_at_once_download_each_file_once(stage: Stage) -> None:
    asset = stage.lock()
    stage.hub.stalls[BIG] = 4096
    lines: list[list[str]] = []
    threads = [threading.Thread(target=lambda: lines.append(stage.fetch())) for _ in range(2)]
    threads[0].start()
    assert stage.hub.stalled.wait(30)
    threads[1].start()
    threads[1].join(0.3)
    assert threads[1].is_alive()
    stage.hub.go_on.set()
    for thread in threads:
        thread.join(60)
    assert sorted(line for told in lines for line in told) == [
        "tiny: complete, 5 of 5 files fetched, every SHA-256 is right",
        "tiny: complete, nothing to fetch",
        "tiny: waiting for another kit that fetches it",
    ]
    asked = [seen.path for seen in stage.hub.seen if "/resolve/" in seen.path]
    assert len(asked) == len(set(asked)) == 5
    assert contents(AssetFolder(asset).files) == WANTED


def test_what_a_run_may_use(stage: Stage) -> None:
    refused(
        lambda: require_assets(["tiny"], Mode.QUALIFY, stage.rows), ImageFault, ExitCode.IMAGE, "tiny is not locked"
    )
    assert "not locked" in require_assets(["tiny"], Mode.CI, stage.rows).absent["tiny"]
    asset = stage.lock()
    refused(lambda: require_assets(["tiny"], Mode.QUALIFY, stage.rows), ImageFault, ExitCode.IMAGE, "not in the cache")
    assert "kit assets fetch tiny" in require_assets(["tiny"], Mode.CI, stage.rows).absent["tiny"]
    stage.fetch()
    stage.hub.seen.clear()
    for mode in Mode:
        available = require_assets(["Tiny", "tiny"], mode, stage.rows)
        assert (available.folders, available.absent) == ({"tiny": AssetFolder(asset).files}, {})
    config = AssetFolder(asset).files / "config.json"
    config.write_bytes(config.read_bytes().replace(b"tiny", b"evil"))
    os.utime(config, ns=(0, 0))
    refused(lambda: require_assets(["tiny"], Mode.QUALIFY, stage.rows), ImageFault, ExitCode.IMAGE, "config.json")
    with pytest.raises(UsageFault, match="did you mean 'tiny'"):
        require_assets(["tinny"], Mode.CI, stage.rows)
    assert stage.hub.seen == []


def test_the_command_from_lock_to_verify(stage: Stage) -> None:
    before = stage.kit("assets", "fetch", "tiny")
    assert (before.returncode, before.stderr) == (
        4,
        "kit: asset tiny is not locked; run 'kit assets lock tiny' where the hub can be reached\n",
    )
    locked = stage.kit("assets", "lock", "TINY")
    assert locked.returncode == 0, locked.stderr
    assert locked.stdout == f"tiny: {COMMIT}, 5 files, 26.3 MB: written\n"
    fetched = stage.kit("assets", "fetch", "tiny")
    assert fetched.returncode == 0, fetched.stderr
    assert "fetched config.json: 22 bytes" in fetched.stdout
    assert fetched.stdout.endswith("tiny: complete, 5 of 5 files fetched, every SHA-256 is right\n")
    listed = [line.split()[:2] for line in stage.kit("assets", "list").stdout.splitlines()]
    assert listed == [["other", "unlocked"], ["tiny", "ready"]]
    assert stage.kit("assets", "verify").returncode == 0
    wrong = stage.kit("assets", "fetch", "tiny", "tinny")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "did you mean 'tiny'" in wrong.stderr


@pytest.mark.parametrize("failure", ["none", "gated", "down", "cut", "wrong"])
def test_the_token_is_in_no_output_and_no_file(stage: Stage, tmp_path: Path, failure: str) -> None:
    """The hub quotes the token in its error messages; nothing that kit or the library writes repeats it."""
    stage.model.token = TOKEN
    loud = {"HF_TOKEN": TOKEN, "HF_DEBUG": "1", "HF_HUB_VERBOSITY": "debug"}
    said = [stage.kit("assets", "lock", "tiny", **loud)]
    match failure:
        case "gated":
            stage.model.token = "hf_" + "another" * 5
        case "down":
            stage.hub.status, stage.hub.body = 500, f'{{"error": "you sent {TOKEN}"}}'.encode()
        case "cut":
            stage.hub.breaks[BIG], stage.hub.down = BLOCK + 1, True
        case "wrong":
            stage.model.served["config.json"] = b"{}"
    said += [
        stage.kit("assets", *verb, **loud) for verb in (("fetch", "tiny"), ("lock", "tiny"), ("verify",), ("list",))
    ]
    assert (said[1].returncode == 0) == (failure == "none")
    assert any(seen.authorization == f"Bearer {TOKEN}" for seen in stage.hub.seen)
    for done in said:
        assert TOKEN not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 1
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]


def test_nothing_of_a_file_is_kept_in_the_librarys_own_cache(stage: Stage) -> None:
    stage.lock()
    stage.fetch()
    home = Path(os.environ["HF_HOME"])
    big = hashlib.sha256(FILES[BIG]).hexdigest()
    assert not [path for path in home.rglob("*") if path.is_file() and sha256(path.read_bytes()) == big]
