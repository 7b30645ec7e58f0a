"""What a container sees of the pinned assets, on a real engine."""

from pathlib import Path

import docker
import pytest

from kit.host.container import ContainerSpec, container_spec, container_user
from kit.host.devices import ContainerDevices
from kit.host.docker_runtime import DockerRuntime
from kit.host.engine import engine_facts
from kit.plan import PinnedFolder
from kit.profile import find_profile
from tests.docker.launch_stage import run_to_end

pytestmark = pytest.mark.docker


def test_it_reads_them_and_can_change_nothing(
    client: "docker.DockerClient", base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = PinnedFolder(name="tiny", revision="0" * 40, files=()).folder
    run, assets, pinned = (tmp_path / name for name in ("run", "assets", "pinned"))
    for place in (run / "logs", assets, pinned / folder):
        place.mkdir(parents=True)
    (pinned / folder / "weights").write_text("of a model\n")
    look = f"cat {folder}/weights; for f in new {folder}/weights; do touch $f 2>/dev/null || echo closed; done"
    monkeypatch.setattr(ContainerSpec, "command", ["sh", "-c", f"cd /kit/pinned; {look}"])
    spec = container_spec(
        find_profile("cpu"), base, "pinned-mount", run, assets, ContainerDevices(), container_user(), pinned
    )
    runtime = DockerRuntime(client, spec, engine_facts(client))
    run_to_end(runtime)
    assert (run / "logs" / "container.log").read_text() == "of a model\nclosed\nclosed\n"
    assert (pinned / folder / "weights").read_text() == "of a model\n"
