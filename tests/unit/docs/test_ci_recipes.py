"""The recipes of docs/ci: right by the schema of their system, and their steps do what they say, here against the CPU profile."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit.profile import find_profile
from tests.jobs import outcome

FOLDER = Path(__file__).parents[3] / "docs" / "ci"
CASE = "kernels/torch-grouped-decode/b2-hq16-hkv1-d64-dv64-s5"
SCHEMAS = {
    "github-container.yml": "github-workflows",
    "github-docker.yml": "github-workflows",
    "gitlab-ci.yml": "gitlab-ci",
}


def read(name: str) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load((FOLDER / name).read_text())
    return loaded


def of_github(name: str) -> list[str]:
    (job,) = read(name)["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


def of_gitlab(job: str) -> list[str]:
    told = read("gitlab-ci.yml")[job]
    return ["\n".join(told["script"]) + "\n", "\n".join(told["after_script"]) + "\n"]


def of_jenkins() -> list[str]:
    """``sh '…'`` of the stages, as one script, and of what always follows."""
    text = (FOLDER / "Jenkinsfile").read_text()
    stages, after = text.split("post {")
    return ["\n".join(re.findall(r"^ *sh '(.*)'$", part, re.MULTILINE)) + "\n" for part in (stages, after)]


RECIPES = {
    "github-container": lambda: of_github("github-container.yml"),
    "github-docker": lambda: of_github("github-docker.yml"),
    "gitlab-container": lambda: of_gitlab("conformance in the image"),
    "gitlab-docker": lambda: of_gitlab("conformance with docker"),
    "jenkins": of_jenkins,
}
LOCAL = ["github-container", "gitlab-container", "jenkins"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_file_fits_the_schema_of_its_system(name: str) -> None:
    pytest.importorskip("check_jsonschema")
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{SCHEMAS[name]}"]
    done = subprocess.run([*check, str(FOLDER / name)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    broken = (FOLDER / name).read_text().replace("runs-on", "runs-upon").replace("artifacts:", "artefacts: 1\n  stage:")
    again = subprocess.run([*check, "-"], input=broken, capture_output=True, text=True, timeout=120)
    assert again.returncode == 1, again.stdout


def test_the_jenkinsfile_is_balanced_and_has_the_sections_of_a_declarative_pipeline() -> None:
    """No parser of Jenkins' own runs without Jenkins; this holds what a slip of the hand breaks."""
    text = re.sub(r"//.*|'[^'\n]*'|\"[^\"\n]*\"", "", (FOLDER / "Jenkinsfile").read_text())
    for left, right in ("{}", "()", "[]"):
        assert text.count(left) == text.count(right) > 0 or (left == "[" and left not in text)
    assert re.match(r"\s*pipeline \{\s*agent \{", text)
    for section in ("options {", "environment {", "stages {", "steps {", "post {", "always {"):
        assert section in text


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_looks_first_then_runs_and_always_hands_over(name: str) -> None:
    qualify, after = RECIPES[name]()
    lines = [line for line in qualify.splitlines() if not line.startswith("rm ")]
    assert [line.split()[1] for line in lines] == ["doctor", "run"]
    assert "kit bundle" in after
    wanted = "--runtime local" if name in LOCAL else "--runtime docker"
    assert wanted in lines[1]
    assert ("--runtime local" in lines[0]) == (name in LOCAL)


def test_containers_of_the_examples_get_what_their_profile_asks_for() -> None:
    profile = find_profile("mi355x")
    shm = f"--shm-size {int(profile.container.shm) >> 30}g"
    for name in ("github-container.yml", "Jenkinsfile"):
        text = (FOLDER / name).read_text()
        assert shm in text
        assert f"--security-opt seccomp={profile.container.seccomp}" in text
        assert "--device /dev/kfd" in text
        assert "--privileged" not in text
        assert "host" not in re.findall(r"--(?:network|ipc|pid)[= ](\w+)", text)


def test_a_job_has_more_time_than_its_run() -> None:
    """kit must end a run that takes too long, and not the CI system, or nothing is reported."""
    minutes = {name: next(iter(read(name)["jobs"].values()))["timeout-minutes"] for name in SCHEMAS if "github" in name}
    (jenkins,) = re.findall(r"timeout\(time: (\d+), unit: 'MINUTES'\)", (FOLDER / "Jenkinsfile").read_text())
    hours, more = re.fullmatch(r"(\d+)h (\d+)m", read("gitlab-ci.yml")[".conformance"]["timeout"]).groups()
    for longest in (minutes["github-container.yml"], int(jenkins), int(hours) * 60 + int(more)):
        assert longest * 60 > find_profile("mi355x").time.run.total_seconds()
    assert minutes["github-docker.yml"] * 60 > find_profile("h200").time.run.total_seconds()


def executed(script: str, after: str, folder: Path) -> tuple[int, str]:
    """The steps of a recipe, with ``kit`` of this Python on the path, against one fast case of the CPU profile."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "kit").write_text(f'#!/bin/sh\nexec {sys.executable} -m kit "$@"\n')
    (tools / "kit").chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(FOLDER.parents[1]),
        "PROFILE": "cpu",
        "RESULTS": str(folder / "results"),
        "KIT_ARGUMENTS": f"--case {CASE}",
    }
    run = ["bash", "-e", "-o", "pipefail", "-c"]  # as GitHub and GitLab do
    done = subprocess.run([*run, script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    handed = subprocess.run([*run, after], cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    assert handed.returncode == 0, handed.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.engine
def test_the_steps_of_the_local_recipes_run(tmp_path: Path) -> None:
    """All three are the same but for Jenkins' cleaning of an old workspace, so the longest is run."""
    scripts = {name: RECIPES[name]() for name in LOCAL}
    cleaned = {
        name: "".join(line for line in one.splitlines(True) if not line.startswith("rm "))
        for name, (one, _) in scripts.items()
    }
    assert len(set(cleaned.values())) == 1
    assert len({after for _, after in scripts.values()}) == 1
    code, text = executed(*scripts["jenkins"], tmp_path)
    told = outcome(tmp_path / "results", code, text)
    assert (code, told.statuses) == (0, {CASE: "passed"}), text
    assert (tmp_path / "results.tar.zst").is_file()
