"""What lies in the cache: verified offline, mended, shared, and used by a run."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from kit.errors import ExitCode, ImageFault, UsageFault
from kit.host.asset_cache import (
    AssetFolder,
    Silent,
    State,
    asset_folder,
    require_assets,
    state_of,
    verify_asset,
)
from kit.results.model import Mode
from tests.hub_stage import BIG, COMMIT, FILES, WANTED, Stage, contents, refused


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
