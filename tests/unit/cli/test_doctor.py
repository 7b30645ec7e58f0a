"""``kit doctor`` on this machine: a table or JSON, and an exit code that a script can rely on."""

import json
from pathlib import Path

from tests.jobs import kit


def test_a_machine_without_that_gpu_is_refused(tmp_path: Path) -> None:
    done = kit("doctor", "--profile", "mi355x", "--runtime", "local", "--json", "--output", str(tmp_path / "out"))
    assert done.returncode == 3, done.stderr
    findings = json.loads(done.stdout)
    (architecture,) = [finding for finding in findings if finding["check"] == "architecture"]
    assert architecture["severity"] == "refuse"
    assert "gfx950" in architecture["what"]
    assert all(finding["why"] and finding["remedy"] for finding in findings if finding["severity"] != "ok")
    assert not (tmp_path / "out").exists()


def test_the_table_names_every_check(tmp_path: Path) -> None:
    done = kit("doctor", "--profile", "cpu", "--runtime", "local", "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout
    for check in ("architecture", "clock", "memory", "shm", "limits", "results-disk", "cache", "engine", "assets"):
        assert f"\n{check} " in "\n" + done.stdout


def test_an_engine_that_was_asked_for_and_is_not_there_refuses(tmp_path: Path) -> None:
    done = kit("doctor", "--profile", "cpu", "--runtime", "docker", DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert done.returncode == 3
    assert "no container engine answers" in " ".join(done.stdout.split())


def test_a_wrong_profile_is_one_line() -> None:
    done = kit("doctor", "--profile", "mi35x")
    assert done.returncode == 2
    assert "did you mean 'mi355x'" in done.stderr


def test_it_tells_which_weights_of_real_models_are_not_there() -> None:
    done = kit("doctor", "--profile", "h200")
    for asset in ("qwen3-8b", "lora-diff-qwen3-8b"):
        assert f"asset {asset} is not locked" in " ".join(done.stdout.split())
