"""What NVIDIA's management library says, as kit's GPUs; the library is a stand-in with the answers of one H200."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit.errors import EnvironmentFault
from kit.host import nvml
from kit.host.gpu import Gpu


class NVMLError(Exception):
    """As pynvml's: it carries its number."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def library(**other: object) -> SimpleNamespace:
    """pynvml on a machine with one H200 that two processes use."""
    answers: dict[str, object] = {
        "NVMLError": NVMLError,
        "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
        "NVML_ERROR_DRIVER_NOT_LOADED": 9,
        "NVML_ERROR_NOT_SUPPORTED": 3,
        "NVML_DEVICE_MIG_ENABLE": 1,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=143771 * 2**20, used=4 * 2**20),
        "nvmlDeviceGetUUID": lambda handle: "GPU-46f77619-68bf-0000-0000-000000000000",
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(pciDeviceId=0x233510DE),
        "nvmlDeviceGetMigMode": lambda handle: (0, 0),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=pid) for pid in (812, 90, 812)],
    }
    return SimpleNamespace(**(answers | other))


def failing(number: int) -> object:
    def fail(*_: object) -> None:
        raise NVMLError(number)

    return fail


@pytest.fixture(autouse=True)
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.126.20\n")
    monkeypatch.setattr(nvml, "_DRIVER", version)
    return version


def test_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    (gpu,) = nvml.nvml_gpus()
    assert gpu == Gpu(
        index=0,
        vendor="nvidia",
        architecture="sm_90",
        memory=143771 * 2**20,
        render_node="",
        unique_id="GPU-46f77619-68bf-0000-0000-000000000000",
        device_id=0x2335,
        busy_pids=(90, 812),
        used=4 * 2**20,
    )


@pytest.mark.parametrize(
    ("mode", "partition"), [(lambda handle: (1, 1), "MIG"), (lambda handle: (0, 1), ""), (failing(3), "")]
)
def test_a_split_gpu_is_told(monkeypatch: pytest.MonkeyPatch, mode: object, partition: str) -> None:
    """A mode that is only pending does not count, and a GPU without the feature is whole."""
    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlDeviceGetMigMode=mode))
    assert [gpu.partition for gpu in nvml.nvml_gpus()] == [partition]


def test_no_driver_no_gpu(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (9, 12):
        monkeypatch.setitem(sys.modules, "pynvml", library(nvmlInit=failing(number)))
        assert nvml.nvml_gpus() == ()
    driver.unlink()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.nvml_gpus() == ()


def test_a_driver_that_cannot_be_asked_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(EnvironmentFault, match="this Python has no nvidia-ml-py"):
        nvml.nvml_gpus()
    for broken in ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMigMode"):
        monkeypatch.setitem(sys.modules, "pynvml", library(**{broken: failing(999)}))
        with pytest.raises(EnvironmentFault, match="the NVIDIA driver does not answer: error 999"):
            nvml.nvml_gpus()
