"""NVIDIA GPUs as the driver's management library (NVML) tells them."""

from pathlib import Path

from kit.errors import EnvironmentFault
from kit.host.gpu import Gpu

_DRIVER = Path("/proc/driver/nvidia/version")


def nvml_gpus() -> tuple[Gpu, ...]:
    """The NVIDIA GPUs of this machine, in NVML's order (by PCI bus); none where the driver is not there.

    Raises:
        EnvironmentFault: the driver is there and does not answer, or cannot be asked.
    """
    if not _DRIVER.exists():
        return ()
    try:
        import pynvml
    except ImportError:
        raise EnvironmentFault(
            "this Python has no nvidia-ml-py, by which NVIDIA's driver tells of its GPUs", "install it beside kit"
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
            return ()
        raise _fault(error) from None
    try:
        return tuple(_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        raise _fault(error) from None
    finally:
        pynvml.nvmlShutdown()


def _fault(error: Exception) -> EnvironmentFault:
    return EnvironmentFault(f"the NVIDIA driver does not answer: {error}", "see 'nvidia-smi' and 'dmesg'")


def _gpu(index: int) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        index=index,
        vendor="nvidia",
        architecture=f"sm_{major}{minor}",
        memory=int(memory.total),
        render_node="",
        unique_id=str(pynvml.nvmlDeviceGetUUID(handle)),
        device_id=int(pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId) >> 16,
        partition="MIG" if _is_split(handle) else "",
        busy_pids=tuple(sorted({int(process.pid) for process in processes})),
        used=int(memory.used),
    )


def _is_split(handle: object) -> bool:
    import pynvml

    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
            return False
        raise
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def cuda_of_driver() -> tuple[int, int] | None:
    """The newest CUDA that the driver serves, major and minor; None where it does not tell."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        number = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    return number // 1000, number % 1000 // 10
