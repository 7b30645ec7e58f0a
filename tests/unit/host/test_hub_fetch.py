"""`kit assets fetch`: what comes, what is resumed, and what is refused."""

import signal
import subprocess
from functools import partial

import pytest

from kit.asset import PinnedFile, load_assets
from kit.errors import EnvironmentFault, ExitCode, ImageFault
from kit.host.asset_cache import (
    MARKER,
    AssetFolder,
    Silent,
    State,
    asset_folder,
    state_of,
)
from kit.host.asset_fetch import fetch_asset
from kit.host.asset_lock import lock_asset
from kit.host.hub import Hub
from tests.hub_server import Repository, sha256
from tests.hub_stage import BIG, BLOCK, COMMIT, FILES, WANTED, Stage, contents, refused


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
