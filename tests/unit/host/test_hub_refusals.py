"""Gated, gone, unreachable, or no space: one line each, and no token anywhere."""

import hashlib
import os
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit.errors import EnvironmentFault, ExitCode, ImageFault, UsageFault
from kit.host import asset_fetch
from kit.host.asset_cache import (
    AssetFolder,
    Silent,
    State,
    state_of,
)
from kit.host.asset_fetch import fetch_asset
from kit.host.hub import Hub
from tests.hub_server import sha256
from tests.hub_stage import BIG, BLOCK, COMMIT, FILES, TOKEN, WANTED, Stage, contents, refused


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
