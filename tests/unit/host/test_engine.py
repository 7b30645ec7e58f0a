"""What docker and podman say of themselves, in the form of their own answers."""

import resource
from pathlib import Path

import pytest

from kit.host.devices import EngineFacts
from kit.host.engine import engine_settings, facts_of

DOCKER = {"Version": "29.0.1", "Components": [{"Name": "Engine"}, {"Name": "containerd"}]}
PODMAN = {"Version": "6.0.1", "Components": [{"Name": "Podman Engine"}, {"Name": "Conmon"}]}
DEBIAN_PODMAN = {"Version": "4.3.1", "Components": [{"Name": "Podman Engine"}]}
DEBIAN_DOCKER = {"Version": "20.10.24+dfsg1", "Components": [{"Name": "Engine"}]}
NVIDIA = "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: '0'\n"
AMD = '{"cdiVersion":"0.6.0","kind":"amd.com/gpu","devices":[{"name":"0"}]}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "etc" / "cdi"
    folder.mkdir(parents=True)
    (folder / "nvidia.yaml").write_text(NVIDIA)
    (folder / "amd.json").write_text(AMD)
    return tmp_path


@pytest.mark.parametrize(
    ("info", "version", "expected"),
    [
        (
            {"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"], "SecurityOptions": ["name=seccomp,profile=builtin"]},
            DOCKER,
            EngineFacts("docker", "29.0.1", False, frozenset({"nvidia.com/gpu", "amd.com/gpu"})),
        ),
        ({"CDISpecDirs": []}, DOCKER, EngineFacts("docker", "29.0.1")),
        ({"CDISpecDirs": ["/etc/cdi"]}, DEBIAN_DOCKER, EngineFacts("docker", "20.10.24+dfsg1")),
        ({}, DEBIAN_DOCKER, EngineFacts("docker", "20.10.24+dfsg1")),
        ({"SecurityOptions": ["name=rootless"]}, DOCKER, EngineFacts("docker", "29.0.1", rootless=True)),
        ({"SecurityOptions": ["name=userns"]}, DOCKER, EngineFacts("docker", "29.0.1", remapped=True)),
        (
            {"Rootless": True, "SecurityOptions": None},
            PODMAN,
            EngineFacts("podman", "6.0.1", True, frozenset({"nvidia.com/gpu", "amd.com/gpu"})),
        ),
        ({"SecurityOptions": ["name=seccomp"]}, DEBIAN_PODMAN, EngineFacts("podman", "4.3.1")),
        ({}, {**PODMAN, "Version": "5.1.0-rc1"}, EngineFacts("podman", "5.1.0-rc1")),
        ({}, {**PODMAN, "Version": ""}, EngineFacts("podman", "")),
    ],
)
def test_engines(info: dict[str, object], version: dict[str, object], expected: EngineFacts, root: Path) -> None:
    assert facts_of(info, version, root) == expected


@pytest.mark.parametrize(
    ("version", "runtime", "kept"),
    [
        ("4.3.1", "crun", False),
        ("5.0.3", "crun", False),
        ("5.1.0", "crun", True),
        ("5.4.2", "runc", False),
        ("6.0", "crun", True),
    ],
)
def test_groups_are_kept_by_crun_and_since_podman_5_1(version: str, runtime: str, kept: bool, tmp_path: Path) -> None:
    told = {**PODMAN, "Version": version}
    assert facts_of({"DefaultRuntime": runtime}, told, tmp_path).keeps_groups == kept
    assert not facts_of({"DefaultRuntime": runtime}, {**DOCKER, "Version": version}, tmp_path).keeps_groups


def test_no_specification_no_cdi(tmp_path: Path) -> None:
    assert facts_of({"CDISpecDirs": ["/etc/cdi"]}, DOCKER, tmp_path).cdi == frozenset()


def test_no_limit_exceeds_what_the_caller_has(tmp_path: Path) -> None:
    (tmp_path / "pid_max").write_text("4194304\n")
    for engine in (EngineFacts("docker"), EngineFacts("podman")):
        limits = {limit["Name"]: limit for limit in engine_settings(engine, tmp_path / "pid_max")["ulimits"]}
        assert ("nproc" in limits) == (engine.kind == "podman")
        for name, limit in limits.items():
            _, own = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
            assert limit["Soft"] == limit["Hard"] > 0
            assert own in (resource.RLIM_INFINITY, max(own, limit["Hard"]))


def test_a_remapped_engine_keeps_the_host_s_users_for_this_container() -> None:
    assert engine_settings(EngineFacts(remapped=True))["userns_mode"] == "host"
    assert "userns_mode" not in engine_settings(EngineFacts())
