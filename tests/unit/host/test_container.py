import grp
import os
from pathlib import Path

import pytest

from kit.errors import EnvironmentFault
from kit.host.container import ContainerSpec, as_command_line, container_spec, device_nodes, group_numbers
from kit.profile import find_profile


def spec_of(profile: str) -> ContainerSpec:
    return container_spec(find_profile(profile), "image:1", "id", Path("/results"), Path("/assets"))


@pytest.mark.parametrize("profile", ["cpu", "mi355x", "b200", "h200"])
def test_every_container_is_closed_up(profile: str) -> None:
    arguments = as_command_line(spec_of(profile))
    for expected in (
        "--label kit.run=id",
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        f"--user {os.getuid()}:{os.getgid()}",
        "--mount type=bind,source=/results,target=/kit/run",
        "--mount type=bind,source=/assets,target=/kit/assets,readonly",
    ):
        assert expected in arguments
    assert not [a for a in arguments if ("privileged" in a and "no-new" not in a) or "cap-add" in a or "host" in a]
    assert not [a for a in arguments if a.startswith("--env") and ("TOKEN" in a or "SECRET" in a)]


def test_limits_come_from_the_profile() -> None:
    arguments = as_command_line(spec_of("cpu"))
    assert f"--memory {6 * 2**30}" in arguments
    assert f"--memory-swap {6 * 2**30}" in arguments
    assert f"--shm-size {2**30}" in arguments
    assert "--pids-limit 2048" in arguments


def test_rocm_gets_its_devices_and_groups() -> None:
    """As in scripts/ci/amd/amd_ci_start_container.sh of sglang: kfd, dri, video, seccomp unconfined, 32g of shared memory."""
    arguments = as_command_line(spec_of("mi355x"))
    for expected in (
        "--device /dev/kfd",
        "--device /dev/dri",
        "--group-add video",
        "--security-opt seccomp=unconfined",
        f"--shm-size {32 * 2**30}",
    ):
        assert expected in arguments
    assert not [a for a in arguments if a.startswith("--gpus")]


@pytest.mark.parametrize(("profile", "gpus"), [("b200", 4), ("h200", 1)])
def test_cuda_asks_for_its_gpus(profile: str, gpus: int) -> None:
    arguments = as_command_line(spec_of(profile))
    assert f"--gpus {gpus}" in arguments
    assert not [a for a in arguments if a.startswith("--device")]


def test_device_folders_become_their_nodes(tmp_path: Path) -> None:
    (tmp_path / "dev" / "dri" / "by-path").mkdir(parents=True)
    os.mknod(tmp_path / "dev" / "kfd", 0o600 | 0o020000, os.makedev(1, 3)) if os.getuid() == 0 else pytest.skip(
        "needs root"
    )
    for name in ("renderD129", "renderD128"):
        os.mknod(tmp_path / "dev" / "dri" / name, 0o600 | 0o020000, os.makedev(1, 3))
    nodes = device_nodes(spec_of("mi355x"), tmp_path)
    assert [str(Path(node).relative_to(tmp_path)) for node in nodes] == [
        "dev/kfd",
        "dev/dri/renderD128",
        "dev/dri/renderD129",
    ]


def test_a_missing_device_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="/dev/kfd is not on this machine"):
        device_nodes(spec_of("mi355x"), tmp_path)


def test_groups_become_numbers_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"video": 44, "render": 105}
    monkeypatch.setattr(grp, "getgrnam", lambda name: grp.struct_group((name, "x", numbers[name], [])))
    assert group_numbers(spec_of("mi355x")) == ["44", "105"]
    numbers.pop("render")
    with pytest.raises(EnvironmentFault, match="group render does not exist"):
        group_numbers(spec_of("mi355x"))
