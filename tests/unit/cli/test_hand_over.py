"""`kit bundle` and `kit verify` as they are typed: what is printed, and which exit code."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.jobs import kit
from tests.unit.results.runs import Staged, measured


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("handed-over")
    Staged(measure=lambda case: measured(case, 50.0 if case.id.startswith("kernels/") else 1.0)).write(folder / "red")
    return folder


def test_from_the_folder_to_the_verified_bundle(place: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / "lab")], check=True)
    (place / "signers").write_text(f"lab@example.org {(place / 'lab.pub').read_text()}")
    done = kit("bundle", str(place / "red"), "--sign-key", str(place / "lab"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{place}/red.tar.zst: ") and done.stdout.endswith(" bytes, signed\n")
    done = kit("verify", str(place / "red.tar.zst"), "--profile", "CPU", "--allowed-signers", str(place / "signers"))
    assert done.returncode == 0, done.stdout
    assert "note: signed by lab@example.org" in done.stdout
    assert "verified: run 20261201-120000-abcdef, profile cpu, mode ci: DOES NOT CONFORM" in done.stdout


def test_each_reason_is_on_a_line_and_the_exit_code_is_1(place: Path) -> None:
    done = kit("verify", str(place / "red"), "--profile", "h200")
    assert done.returncode == 1
    assert "refused: it is a run of profile cpu" in done.stdout and "verified" not in done.stdout
    assert done.stderr == ""


def test_usage_is_exit_code_2(place: Path) -> None:
    for arguments in (("verify", str(place / "absent")), ("bundle", str(place / "absent")), ("diff", "a", "b")):
        done = kit(*arguments)
        assert done.returncode == 2
        assert "does not exist" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["verify", "bundle", "report"])
@pytest.mark.parametrize("what", ["folder", "file.json.gz", "folder/pipe"])
def test_what_is_no_run_is_told_so_and_left_alone(tmp_path: Path, command: str, what: str) -> None:
    """A pipe would be waited for, and a link would be complained of, if either was looked into."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe")
    (tmp_path / "folder" / "link").symlink_to("nowhere")
    (tmp_path / "file.json.gz").write_text("text")
    done = kit(command, str(tmp_path / what))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path / what} is no results folder or bundle of kit" in done.stderr
    assert done.stderr.count("\n") == 1 and "remove" not in done.stderr


def test_a_bundle_is_not_bundled_again(place: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "x.tar.zst"
    assert kit("bundle", str(place / "red"), "--output", str(bundle)).returncode == 0
    done = kit("bundle", str(bundle))
    assert done.returncode == 2 and "is no results folder of kit" in done.stderr
