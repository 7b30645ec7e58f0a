"""`kit assets lock` against a server that speaks the hub's endpoints."""

from kit.asset import load_assets
from kit.errors import ExitCode, ImageFault
from kit.host.asset_lock import lock_asset, write_asset
from kit.host.hub import Hub
from tests.hub_server import sha256
from tests.hub_stage import COMMIT, FILES, TOML, WANTED, Stage, refused


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
