"""From a machine to the devices of a container, over simulated trees; and what no container may ever get, over all machines."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kit.errors import EnvironmentFault, UsageFault
from kit.host.devices import (
    KEEP_GROUPS,
    EngineFacts,
    check_wanted,
    choose,
    container_devices,
    device_nodes,
    host_gpus,
    nominal,
)
from kit.host.gpu import Gpu, Node
from kit.host.kfd import architecture_name
from kit.profile import Profile, find_profile
from tests.machine import GIB, INTEGRATED, MI300X, MI355X, Machine

MI = find_profile("mi355x").model_copy(
    update={"partition": "SPX/NPS1", "gpu_memory": 280 * GIB, "pci_devices": ("0x75a3",)}
)
B200 = find_profile("b200")
DOCKER, PODMAN = EngineFacts("docker", "29.0"), EngineFacts("podman", "4.3.1")
CDI = EngineFacts("docker", "29.0", cdi=frozenset({"nvidia.com/gpu"}))


def nothing() -> tuple[Gpu, ...]:
    return ()


UID = 1000


def of(gpus: int, profile: Profile = MI) -> Profile:
    return profile.model_copy(update={"gpus": gpus})


def nvidia(count: int, **other: object) -> tuple[Gpu, ...]:
    return tuple(Gpu(i, "nvidia", "sm_100", 179 * GIB, "", f"GPU-{i}", **other) for i in range(count))


def closed(*paths: str, group: int = 993, owner: int = 0, mode: int = 0o660) -> dict[str, Node]:
    return {path: Node(path, owner, group, mode) for path in paths}


@pytest.mark.parametrize("count", [1, 4, 8])
def test_gpus_are_read_from_the_kernels_topology(tmp_path: Path, count: int) -> None:
    machine = Machine(tmp_path)
    for _ in range(count):
        machine.amd()
    gpus = host_gpus(tmp_path, nothing)
    assert [gpu.index for gpu in gpus] == list(range(count))
    assert {(gpu.architecture, gpu.memory, gpu.partition, gpu.device_id) for gpu in gpus} == {
        ("gfx950", 288 * GIB, "SPX/NPS1", 0x75A3)
    }
    assert [gpu.render_node for gpu in gpus] == [f"/dev/dri/renderD{128 + 8 * i}" for i in range(count)]
    assert len({gpu.unique_id for gpu in gpus}) == count
    chosen = choose(of(count), gpus)
    given = container_devices(of(count), chosen, closed("/dev/kfd", *(g.render_node for g in gpus)), DOCKER, UID)
    assert given.devices == ("/dev/kfd", *(gpu.render_node for gpu in gpus))
    assert given.groups == ("993",)


def test_nodes_are_ordered_by_number_not_by_text(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for _ in range(11):
        machine.amd()
    assert [gpu.render_node for gpu in host_gpus(tmp_path, nothing)] == [
        f"/dev/dri/renderD{128 + 8 * i}" for i in range(11)
    ]


@pytest.mark.parametrize(
    ("target", "name"),
    [(90500, "gfx950"), (90402, "gfx942"), (90010, "gfx90a"), (100306, "gfx1036"), (110501, "gfx1151")],
)
def test_architectures_are_named_as_compilers_do(target: int, name: str) -> None:
    assert architecture_name(target) == name


def test_some_gpus_are_numbered_from_zero_inside(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for _ in range(8):
        machine.amd()
    chosen = choose(of(2), host_gpus(tmp_path, nothing), (6, 3))
    assert [gpu.index for gpu in chosen] == [6, 3]
    nodes = device_nodes(chosen, tmp_path)
    assert set(nodes) == {"/dev/kfd", "/dev/dri/renderD176", "/dev/dri/renderD152"}
    given = container_devices(of(2), chosen, closed(*nodes), DOCKER, UID)
    assert given.devices == ("/dev/kfd", "/dev/dri/renderD176", "/dev/dri/renderD152")
    assert given.environment == {"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "0,1"}


def test_partitions_are_gpus_of_their_own_and_refused_where_whole_ones_are_wanted(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.amd(parts=8, mode="CPX/NPS1")
    gpus = host_gpus(tmp_path, nothing)
    assert [gpu.render_node for gpu in gpus] == [f"/dev/dri/renderD{128 + i}" for i in range(8)]
    assert len({gpu.unique_id for gpu in gpus}) == 8
    assert {gpu.memory for gpu in gpus} == {36 * GIB}
    with pytest.raises(EnvironmentFault, match="GPU 0 is split as CPX/NPS1, not SPX/NPS1"):
        choose(of(1), gpus)
    split = of(8).model_copy(update={"partition": "CPX/NPS1", "gpu_memory": 30 * GIB})
    assert len(choose(split, gpus)) == 8


def test_a_mixed_machine_gives_what_fits_and_names_the_rest(tmp_path: Path) -> None:
    """An integrated GPU first, a GPU of the wrong architecture, and one of the same architecture and another model."""
    machine = Machine(tmp_path)
    machine.amd(INTEGRATED, mode="", memory=GIB)
    machine.amd()
    machine.amd(MI300X, memory=192 * GIB)
    machine.amd((90500, 0x75A0))
    machine.amd()
    gpus = host_gpus(tmp_path, nothing)
    assert [gpu.index for gpu in choose(of(2), gpus)] == [1, 4]
    with pytest.raises(EnvironmentFault) as caught:
        choose(of(4), gpus)
    for reason in ("2 can be had", "GPU 0 is gfx1036", "GPU 2 is gfx942", "GPU 3 is another model (PCI device 0x75a0)"):
        assert reason in str(caught.value)
    with pytest.raises(EnvironmentFault, match="GPU 2 is gfx942"):
        choose(of(2), gpus, (1, 2))


def test_gpus_that_others_use_are_passed_over(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for _ in range(4):
        machine.amd()
    machine.process(4321, node=1, vram=2 * GIB)
    machine.process(4322, node=3, queues=2)
    machine.process(4323, node=2)  # has /dev/kfd open, and nothing more
    gpus = host_gpus(tmp_path, nothing)
    assert [gpu.busy_pids for gpu in gpus] == [(4321,), (), (4322,), ()]
    assert [gpu.index for gpu in choose(of(2), gpus)] == [1, 3]
    with pytest.raises(EnvironmentFault, match="GPU 0 is in use by process 4321; GPU 2 is in use by process 4322"):
        choose(of(3), gpus)
    with pytest.raises(EnvironmentFault, match="GPU 2 is in use by process 4322"):
        choose(of(1), gpus, (2,))


def test_too_little_memory_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.amd(memory=192 * GIB)
    with pytest.raises(EnvironmentFault, match="GPU 0 has 192 GiB of memory, not 280"):
        choose(of(1), host_gpus(tmp_path, nothing))


def test_a_machine_without_a_gpu_says_so(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"needs 4 × gfx950, and none can be had here; "):
        choose(MI, host_gpus(tmp_path, nothing))


def test_nodes_that_a_container_may_not_read_are_not_its_gpus(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.amd()
    machine.amd()
    (tmp_path / "sys/class/kfd/kfd/topology/nodes/1/properties").unlink()
    assert [gpu.render_node for gpu in host_gpus(tmp_path, nothing)] == ["/dev/dri/renderD136"]


@pytest.mark.parametrize(
    ("profile", "wanted", "message"),
    [
        (MI, (0, 1), "needs 4 GPUs, --gpus names 2"),
        (MI, (0, 1, 2, 2), "names a GPU twice"),
        (find_profile("cpu"), (0,), "needs no GPU"),
    ],
)
def test_numbers_that_no_machine_could_satisfy(profile: Profile, wanted: tuple[int, ...], message: str) -> None:
    for check in (
        lambda: check_wanted(profile, wanted),
        lambda: choose(profile, (), wanted),
        lambda: nominal(profile, wanted),
    ):
        with pytest.raises(UsageFault, match=message):
            check()


def test_a_number_that_no_gpu_has() -> None:
    with pytest.raises(UsageFault, match=r"no GPU 9 of vendor nvidia; there: 0, 1, 2, 3"):
        choose(B200, nvidia(4), (0, 1, 2, 9))


def test_the_group_of_the_node_counts_not_a_name(tmp_path: Path) -> None:
    """A host without a group called render: its number is handed on all the same."""
    machine = Machine(tmp_path)
    machine.amd()
    gpus = host_gpus(tmp_path, nothing)
    nodes = closed("/dev/kfd", group=4242) | closed("/dev/dri/renderD128", group=993)
    assert container_devices(of(1), gpus, nodes, DOCKER, UID).groups == ("4242", "993")
    open_nodes = closed("/dev/kfd", "/dev/dri/renderD128", mode=0o666)
    assert container_devices(of(1), gpus, open_nodes, DOCKER, UID).groups == ()


@pytest.mark.parametrize(("group", "mode"), [(0, 0o660), (993, 0o600)])
def test_a_node_that_no_group_may_use_is_told(group: int, mode: int) -> None:
    gpu = Gpu(0, "amd", "gfx950", 0, "/dev/dri/renderD128", "u")
    nodes = closed("/dev/kfd", "/dev/dri/renderD128", group=group, mode=mode)
    with pytest.raises(EnvironmentFault, match=r"/dev/kfd has no group that may use it.*udev"):
        container_devices(of(1), (gpu,), nodes, DOCKER, UID)


def test_a_missing_node_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.amd()
    (tmp_path / "dev/dri/renderD128").unlink()
    gpus = host_gpus(tmp_path, nothing)
    with pytest.raises(EnvironmentFault, match="renderD128 is not on this machine"):
        container_devices(of(1), gpus, device_nodes(gpus, tmp_path), DOCKER, UID)


def test_rootless_engines() -> None:
    """A newer Podman keeps the caller's groups; the others cannot, so they need nodes that are open or the caller's own."""
    gpu = Gpu(0, "amd", "gfx950", 0, "/dev/dri/renderD128", "u")
    paths = ("/dev/kfd", "/dev/dri/renderD128")
    podman = EngineFacts("podman", "5.4", rootless=True, keeps_groups=True)
    docker = EngineFacts("docker", "29", rootless=True)
    assert container_devices(of(1), (gpu,), closed(*paths), podman, UID).groups == (KEEP_GROUPS,)
    for engine, name in ((docker, "docker 29"), (EngineFacts("podman", "4.3.1", rootless=True), "podman 4.3.1")):
        with pytest.raises(
            EnvironmentFault, match=f"open to group 993 only, and rootless {name} cannot hand on a group"
        ):
            container_devices(of(1), (gpu,), closed(*paths), engine, UID)
    for nodes in (closed(*paths, mode=0o666), closed(*paths, owner=UID)):
        assert container_devices(of(1), (gpu,), nodes, docker, UID).groups == ()


def test_cuda_takes_cdi_where_the_engine_has_it_else_the_vendors_runtime() -> None:
    gpus = nvidia(8)
    chosen = choose(B200, gpus, (4, 5, 6, 7))
    by_cdi = container_devices(B200, chosen, {}, CDI, UID)
    assert by_cdi.cdi == tuple(f"nvidia.com/gpu={i}" for i in (4, 5, 6, 7))
    assert by_cdi.gpu_ids == by_cdi.devices == by_cdi.groups == ()
    assert by_cdi.environment == {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    by_runtime = container_devices(B200, chosen, {}, DOCKER, UID)
    assert (by_runtime.cdi, by_runtime.gpu_ids) == ((), ("GPU-4", "GPU-5", "GPU-6", "GPU-7"))
    with pytest.raises(EnvironmentFault, match=r"podman 4\.3\.1 cannot hand in NVIDIA GPUs.*nvidia-ctk cdi generate"):
        container_devices(B200, chosen, {}, PODMAN, UID)


def test_nvidia_gpus_that_are_split_or_busy() -> None:
    with pytest.raises(EnvironmentFault, match="GPU 0 is split as MIG, not whole"):
        choose(of(1, B200), nvidia(1, partition="MIG"))
    with pytest.raises(EnvironmentFault, match="GPU 0 is in use by processes 7, 8"):
        choose(of(1, B200), nvidia(1, busy_pids=(7, 8)))


def test_a_profile_takes_no_gpu_of_another_vendor(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.amd(MI355X)
    gpus = host_gpus(tmp_path, lambda: nvidia(1))
    assert [(gpu.vendor, gpu.index) for gpu in gpus] == [("amd", 0), ("nvidia", 0)]
    assert choose(of(1), gpus)[0].vendor == "amd"
    assert choose(of(1, B200), gpus)[0].vendor == "nvidia"


def test_a_cpu_profile_gets_nothing() -> None:
    cpu = find_profile("cpu")
    assert choose(cpu, nvidia(2)) == ()
    given = container_devices(cpu, (), {}, DOCKER, UID)
    assert given == nominal(cpu)
    assert not (given.devices or given.groups or given.cdi or given.gpu_ids or given.environment)


@pytest.mark.parametrize("make", [lambda: MI, lambda: B200])
def test_a_dry_run_has_the_form_of_the_real_thing(make: Callable[[], Profile], tmp_path: Path) -> None:
    profile = make()
    machine = Machine(tmp_path)
    for _ in range(4):
        machine.amd()
    gpus = host_gpus(tmp_path, lambda: nvidia(4))
    chosen = choose(profile, gpus)
    real = container_devices(profile, chosen, closed("/dev/kfd", *(g.render_node for g in chosen)), CDI, UID)
    told = nominal(profile)
    assert (len(told.devices), len(told.groups), len(told.cdi)) == (len(real.devices), len(real.groups), len(real.cdi))
    assert told.environment == real.environment
