"""What mode qualify refuses once the engine and the image are known; nothing is started, and every case says why."""

from dataclasses import replace
from pathlib import Path

import pytest

from kit.errors import ExitCode
from kit.events import AnyEvent
from kit.host import docker_runtime, image_store, leftovers
from kit.host.image_store import BuiltImage
from kit.host.planner import Selection, make_plan
from kit.host.run import Prepared, Request, execute, prepare, with_inputs
from kit.host.supervisor import StopRequest
from kit.profile import find_profile
from kit.results.model import Mode, Status
from kit.waiver import Waivers


class Silent:
    def line(self, text: str) -> None:
        """Say nothing."""

    def event(self, event: AnyEvent) -> None:
        """Say nothing."""


def qualifying(folder: Path) -> Prepared:
    """As if the definition's base were pinned, so that preparing does not refuse it already."""
    return replace(prepare(Request(profile="cpu", output=folder / "out")), mode=Mode.QUALIFY)


def test_without_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    finished = execute(qualifying(tmp_path), StopRequest(), Silent())
    assert "qualify needs the pinned image, and no container engine answers" in finished.refused
    assert finished.result.exit_code == ExitCode.ENVIRONMENT
    assert {case.status for case in finished.result.cases} == {Status.ENVIRONMENT, Status.SKIPPED}


def pinned_image(monkeypatch: pytest.MonkeyPatch, based: str) -> None:
    image = BuiltImage("sha256:0", "kit-cpu:1", {"kit.base-pinned": based}, 1)
    monkeypatch.setattr(docker_runtime, "connect", lambda: object())
    monkeypatch.setattr(leftovers, "removed", lambda client: ())
    monkeypatch.setattr(image_store, "check_image", lambda client, definition: image)


def test_a_real_model_without_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned_image(monkeypatch, "yes")
    cpu = find_profile("cpu")
    assert cpu.real_models
    profile = cpu.model_copy(update={"real_models": cpu.real_models.model_copy(update={"models": ("qwen3-8b",)})})
    plan = with_inputs(make_plan(profile, Selection(), "x"), profile, Waivers(), Mode.QUALIFY)
    prepared = replace(qualifying(tmp_path), profile=profile, plan=plan, waivers=Waivers())
    finished = execute(prepared, StopRequest(), Silent())
    assert "asset lora-diff-qwen3-8b is not locked; run 'kit assets lock lora-diff-qwen3-8b'" in finished.refused
    assert finished.result.exit_code == ExitCode.IMAGE


def test_an_image_on_another_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned_image(monkeypatch, "no")
    finished = execute(qualifying(tmp_path), StopRequest(), Silent())
    assert "another base than the pinned one" in finished.refused
    assert finished.result.exit_code == ExitCode.IMAGE
    assert {case.status for case in finished.result.cases} == {Status.ENVIRONMENT, Status.SKIPPED}
