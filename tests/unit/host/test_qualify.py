"""What mode qualify refuses once the engine and the image are known; nothing is started and no folder is made."""

from dataclasses import replace
from pathlib import Path

import pytest

from kit.errors import EnvironmentFault, ImageFault
from kit.events import AnyEvent
from kit.host import docker_runtime, image_build
from kit.host.image_build import BuiltImage
from kit.host.run import Prepared, Request, execute, prepare
from kit.host.supervisor import StopRequest
from kit.results.model import Mode


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
    with pytest.raises(EnvironmentFault, match="qualify needs the pinned image, and no container engine answers"):
        execute(qualifying(tmp_path), StopRequest(), Silent())
    assert not (tmp_path / "out").exists()


def test_an_image_on_another_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = BuiltImage("sha256:0", "kit-cpu:1", {"kit.base-pinned": "no"}, 1)
    monkeypatch.setattr(docker_runtime, "connect", lambda: object())
    monkeypatch.setattr(image_build, "check_image", lambda client, definition: image)
    with pytest.raises(ImageFault, match="another base than the pinned one"):
        execute(qualifying(tmp_path), StopRequest(), Silent())
    assert not (tmp_path / "out").exists()
