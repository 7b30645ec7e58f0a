import os
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kit.errors import KitError, UsageFault
from kit.host.container import ContainerSpec, as_command_line, container_spec, container_user
from kit.host.devices import KEEP_GROUPS, ContainerDevices, EngineFacts, container_devices, nominal
from kit.host.gpu import Gpu, Node
from kit.profile import ContainerSettings, Profile, find_profile, load_profiles

PROFILES = load_profiles()


def spec_with(profile: Profile, devices: ContainerDevices, run: str = "/results", user: str = "1:1") -> ContainerSpec:
    return container_spec(profile, "image:1", "id", Path(run), Path("/assets"), devices, user)


def spec_of(name: str) -> ContainerSpec:
    profile = find_profile(name)
    return spec_with(profile, nominal(profile), user=container_user())


@pytest.mark.parametrize("profile", sorted(PROFILES))
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


def test_a_name_that_is_no_utf_8_is_refused_in_words_that_can_be_printed() -> None:
    with pytest.raises(UsageFault, match=r"folder /a/\\xff is no UTF-8") as caught:
        spec_with(find_profile("cpu"), ContainerDevices(), run=os.fsdecode(b"/a/\xff"))
    assert str(caught.value).isascii()
    spec_with(find_profile("cpu"), ContainerDevices(), run="/Ergebnisse/日本 ,:\\'\"\n")


def test_limits_come_from_the_profile() -> None:
    arguments = as_command_line(spec_of("cpu"))
    assert f"--memory {6 * 2**30}" in arguments
    assert f"--memory-swap {6 * 2**30}" in arguments
    assert f"--shm-size {2**30}" in arguments
    assert "--pids-limit 2048" in arguments


def test_rocm_gets_its_devices_and_groups() -> None:
    """As in scripts/ci/amd/amd_ci_start_container.sh of sglang, with single nodes for /dev/dri and numbers for group names."""
    arguments = as_command_line(spec_of("mi355x"))
    for expected in (
        "--device /dev/kfd",
        "--device /dev/dri/<render node of GPU 3>",
        "--group-add <group of these devices>",
        "--security-opt seccomp=unconfined",
        f"--shm-size {32 * 2**30}",
        "--env HIP_VISIBLE_DEVICES=0,1,2,3",
    ):
        assert expected in arguments
    assert len([a for a in arguments if a.startswith("--device")]) == 5
    assert not [a for a in arguments if a.startswith("--gpus")]


def test_cuda_asks_for_its_gpus() -> None:
    arguments = as_command_line(spec_of("b200"))
    assert [a for a in arguments if a.startswith("--device")] == [
        f"--device nvidia.com/gpu=<GPU {i}>" for i in range(4)
    ]
    by_runtime = spec_with(find_profile("b200"), ContainerDevices(gpu_ids=("GPU-1", "GPU-2")))
    assert "--gpus device=GPU-1,GPU-2" in as_command_line(by_runtime)


def test_the_caller_is_root_under_a_rootless_engine() -> None:
    assert container_user(rootless=True) == "0:0"
    assert container_user() == f"{os.getuid()}:{os.getgid()}"


@pytest.mark.parametrize(
    "folder",
    ["/", "/dev", "/dev/shm/x", "/proc/1", "/sys", "/etc", "/run", "/var/run", "/home/someone", "/home", "/x/../home"],
)
def test_folders_of_the_host_are_not_mounted(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    with pytest.raises(UsageFault, match="is not handed to a container"):
        spec_with(find_profile("cpu"), ContainerDevices(), folder)
    assert spec_with(find_profile("cpu"), ContainerDevices(), "/home/someone/results")


def test_a_link_to_the_home_is_not_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(UsageFault, match="is not handed to a container"):
        spec_with(find_profile("cpu"), ContainerDevices(), str(tmp_path / "link"))


@pytest.mark.parametrize(
    "devices",
    [
        ContainerDevices(devices=("/dev",)),
        ContainerDevices(devices=("/dev/dri",)),
        ContainerDevices(devices=("/dev/dri/card0",)),
        ContainerDevices(devices=("/dev/dri/../sda",)),
        ContainerDevices(devices=("/dev/mem",)),
        ContainerDevices(cdi=("nvidia.com/gpu=all",)),
        ContainerDevices(gpu_ids=("all",)),
        ContainerDevices(groups=("0",)),
        ContainerDevices(groups=("docker",)),
    ],
)
def test_nothing_wider_than_the_gpus_can_be_said(devices: ContainerDevices) -> None:
    with pytest.raises(ValueError, match="no container gets"):
        spec_with(find_profile("cpu"), devices)


def test_no_capability_but_that_of_profilers() -> None:
    cpu = find_profile("cpu")
    wide = cpu.model_copy(update={"container": cpu.container.model_copy(update={"capabilities": ("SYS_ADMIN",)})})
    with pytest.raises(ValueError, match="no container gets SYS_ADMIN"):
        spec_with(wide, ContainerDevices())


names = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20)
gpus = st.builds(
    Gpu,
    index=st.integers(0, 9),
    vendor=st.sampled_from(["amd", "nvidia"]),
    architecture=st.sampled_from(["gfx950", "sm_100", "sm_90"]),
    memory=st.integers(0, 2**40),
    render_node=st.sampled_from(["/dev/dri/renderD128", "/dev/dri/renderD136", "/dev/dri", "/dev", "/", "", "/dev/sda"])
    | names,
    unique_id=st.sampled_from(["GPU-1", "all", ""]) | names,
    device_id=st.sampled_from([0, 0x75A3]),
    partition=st.sampled_from(["", "SPX/NPS1", "CPX/NPS1", "MIG"]),
    busy_pids=st.sampled_from([(), (1,)]),
)
engines = st.builds(
    EngineFacts,
    kind=st.sampled_from(["docker", "podman"]),
    version=names,
    rootless=st.booleans(),
    keeps_groups=st.booleans(),
    cdi=st.sampled_from([frozenset(), frozenset({"nvidia.com/gpu"})]),
)


settings_of_containers = st.builds(
    ContainerSettings,
    memory=st.integers(64, 2**20).map(lambda mib: f"{mib}MiB"),
    shm=st.integers(1, 2**20).map(lambda mib: f"{mib}MiB"),
    pids=st.integers(64, 2**22),
    capabilities=st.sampled_from([(), ("SYS_PTRACE",)]),
    seccomp=st.sampled_from(["default", "unconfined"]),
)


@given(
    profile=st.sampled_from([p for p in PROFILES.values() if p.gpus]),
    container=settings_of_containers,
    partition=st.sampled_from([None, "SPX/NPS1", "CPX/NPS1"]),
    count=st.integers(1, 3),
    machine=st.lists(gpus, max_size=6),
    engine=engines,
    owner=st.sampled_from([0, 1000]),
    group=st.integers(0, 3),
    mode=st.sampled_from([0o600, 0o660, 0o666, 0o000]),
    run=st.sampled_from(["/results", "/results", "/results", "/", "/root", "/dev/shm", "/home/someone", "relative"]),
)
@settings(max_examples=300, deadline=None)
def test_no_machine_and_no_engine_leads_to_more_than_the_gpus(
    profile: Profile,
    container: ContainerSettings,
    partition: str | None,
    count: int,
    machine: list[Gpu],
    engine: EngineFacts,
    owner: int,
    group: int,
    mode: int,
    run: str,
) -> None:
    """Whatever drivers and engines say: single device nodes, no privileges, and no folder but two of kit's own."""
    profile = profile.model_copy(
        update={"gpus": count, "container": container, "partition": partition, "gpu_memory": None, "pci_devices": ()}
    )
    chosen = tuple(machine[:count])
    try:
        paths = {"/dev/kfd", *(gpu.render_node for gpu in chosen)}
        nodes = {path: Node(path, owner, group, mode) for path in paths}
        spec = spec_with(profile, container_devices(profile, chosen, nodes, engine, 1000), run)
    except (KitError, ValueError):
        event("refused")
        return
    event("given")
    arguments = as_command_line(spec)
    assert not [a for a in arguments if "privileged" in a.replace("no-new-privileges", "")]
    assert [a for a in arguments if a.startswith("--cap-add")] == [f"--cap-add {c}" for c in container.capabilities]
    words = {a.split()[0] for a in arguments}
    assert not words & {"--ipc", "--pid", "--userns", "--uts", "--volume", "--gpus all"}
    assert "--network none" in arguments
    devices = [a.removeprefix("--device ") for a in arguments if a.startswith("--device")]
    assert all(d == "/dev/kfd" or d.startswith(("/dev/dri/renderD", "nvidia.com/gpu=")) for d in devices)
    assert not [d for d in devices if d.endswith(("renderD", "=all")) or ".." in d]
    mounts = [a for a in arguments if a.startswith("--mount")]
    assert len(mounts) == 2
    home = os.environ.get("HOME", "/root")
    assert not [m for m in mounts if any(f"source={bad}," in m for bad in ("/", home, "/dev/shm"))]
    assert set(spec.devices.groups) == {KEEP_GROUPS} or "0" not in spec.devices.groups


def test_pinned_assets_are_one_more_read_only_folder_where_a_run_needs_them() -> None:
    profile = find_profile("cpu")
    place = Path("/var/cache/kit/assets")
    spec = container_spec(profile, "i:1", "id", Path("/r"), Path("/a"), ContainerDevices(), "1:1", pinned_folder=place)
    assert f"--mount type=bind,source={place},target=/kit/pinned,readonly" in as_command_line(spec)
    assert spec.command[-2:] == ["--pinned", "/kit/pinned"]
    assert not any("pinned" in argument for argument in as_command_line(spec_of("cpu")))
    with pytest.raises(UsageFault):
        container_spec(profile, "i:1", "id", Path("/r"), Path("/a"), ContainerDevices(), "1:1", pinned_folder=Path("/"))
