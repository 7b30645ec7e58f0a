"""The doctor on simulated machines: what the driver's files say decides, whatever the machine is called."""

from pathlib import Path

import pytest

from kit.errors import EnvironmentFault
from kit.finding import Finding, Severity
from kit.host.devices import host_gpus
from kit.host.doctor.gpus import gpus_or_fault, look_at_driver, look_at_gpus
from kit.profile import find_profile
from tests.machine import GIB, MI300X, Machine


def looked(machine: Machine, profile: str = "mi355x", **options: bool) -> dict[str, list[Finding]]:
    chosen = find_profile(profile)
    gpus = host_gpus(machine.root, tuple)
    found: dict[str, list[Finding]] = {}
    for finding in look_at_gpus(chosen, gpus, machine.root, **{"container": True, **options}):
        found.setdefault(finding.check, []).append(finding)
    return found


def severities(found: dict[str, list[Finding]]) -> dict[str, str]:
    order = [Severity.OK, Severity.WARN, Severity.REFUSE]
    return {check: max((f.severity for f in some), key=order.index).value for check, some in found.items()}


def with_gpus(root: Path, count: int, **options: object) -> Machine:
    machine = Machine(root)
    for _ in range(count):
        machine.amd(**options)  # type: ignore[arg-type]
    return machine


def test_a_machine_of_the_profile_is_well(tmp_path: Path) -> None:
    found = looked(with_gpus(tmp_path, 4))
    assert severities(found) == {"architecture": "ok", "gpu-count": "ok", "gpu": "ok", "device-permissions": "ok"}
    assert "4 × gfx950" in found["architecture"][0].what


def test_another_architecture_is_refused_and_its_own_profile_named(tmp_path: Path) -> None:
    """ROCm/TheRock issue 8151: jobs for gfx950 had all run on gfx942, and their sanity test had passed."""
    found = looked(with_gpus(tmp_path, 8, model=MI300X))
    assert severities(found) == {"architecture": "refuse"}
    (finding,) = found["architecture"]
    assert "8 × gfx942" in finding.what
    assert "gfx950" in finding.what
    assert finding.why
    assert finding.remedy


def test_a_machine_without_a_gpu_is_refused(tmp_path: Path) -> None:
    assert "the driver reports no GPU" in looked(Machine(tmp_path))["architecture"][0].what


def test_too_few_are_refused(tmp_path: Path) -> None:
    found = looked(with_gpus(tmp_path, 3))
    assert found["gpu-count"][0].severity is Severity.REFUSE
    assert "3 GPUs fit the profile and 3 of them are free, 4 are needed" in found["gpu-count"][0].what


def test_a_busy_gpu_matters_only_where_too_few_are_left(tmp_path: Path) -> None:
    for spare, severity in ((0, "refuse"), (1, "ok")):
        machine = with_gpus(tmp_path / str(spare), 4 + spare)
        machine.process(4711, node=1, vram=46 * GIB)
        found = looked(machine)
        assert severities(found)["gpu-count"] == severity
        assert any("4711" in finding.what for finding in found["gpu"])


def test_memory_that_nobody_holds_makes_a_gpu_unfit(tmp_path: Path) -> None:
    """sglang issue 24586: 46,111 of 262,128 MB stranded by a killed process, and no process to be seen."""
    machine = with_gpus(tmp_path, 4)
    machine.write("sys/bus/pci/devices/0000:11:00.0/mem_info_vram_used", str(46 * GIB))
    found = looked(machine)
    assert found["gpu-count"][0].severity is Severity.REFUSE
    assert any("46.0 of 288 GiB in use, and no process" in finding.what for finding in found["gpu"])
    machine.write("sys/bus/pci/devices/0000:11:00.0/mem_info_vram_used", str(GIB // 2))
    assert severities(looked(machine))["gpu-count"] == "ok"


def test_a_closed_device_is_refused_with_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm-docker issues 90, 93, 116: rocm-smi works, and /dev/kfd is closed to the user."""
    machine = with_gpus(tmp_path, 4)
    (tmp_path / "dev/kfd").chmod(0o600)
    monkeypatch.setattr("os.access", lambda path, mode: not str(path).endswith("kfd"))
    (finding,) = looked(machine, container=False)["device-permissions"]
    assert finding.severity is Severity.REFUSE
    assert "/dev/kfd is closed" in finding.what


def test_gpus_that_the_caller_has_chosen_are_not_counted(tmp_path: Path) -> None:
    assert severities(looked(with_gpus(tmp_path, 2), given=True)) == {"architecture": "ok"}


@pytest.mark.parametrize(
    ("cuda", "needs", "severity"),
    [((12, 9), 13, "refuse"), ((13, 0), 13, "ok"), ((13, 2), 13, "ok"), ((14, 0), 13, "ok"), (None, 13, "ok")],
)
def test_a_driver_older_than_the_image_is_refused(cuda: tuple[int, int] | None, needs: int, severity: str) -> None:
    finding = look_at_driver(find_profile("h200"), {"driver.nvidia": "580.1"}, cuda, needs)
    assert finding.severity.value == severity
    assert "580.1" in finding.what


def test_a_driver_that_does_not_answer_is_a_finding() -> None:
    def silent() -> tuple[()]:
        raise EnvironmentFault("the NVIDIA driver does not answer: unknown error", "see dmesg")

    gpus, finding = gpus_or_fault(silent)
    assert gpus == ()
    assert finding is not None
    assert finding.severity is Severity.REFUSE
