"""Driver and firmware, read from trees as the kernel shows them."""

from pathlib import Path

from kit.host.drivers import driver_facts


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_nvidia(tmp_path: Path) -> None:
    write(tmp_path / "sys/module/nvidia/version", "580.95.05\n")
    text = "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-12\nVideo BIOS: \t 96.00.cf.00.01\nGPU Firmware: \t 580.95.05\n"
    write(tmp_path / "proc/driver/nvidia/gpus/0000:0a:00.0/information", text)
    assert driver_facts(tmp_path / "proc", tmp_path / "sys") == {
        "driver.nvidia": "580.95.05",
        "firmware.0000:0a:00.0.vbios": "96.00.cf.00.01",
        "firmware.0000:0a:00.0.gsp": "580.95.05",
    }


def test_amd(tmp_path: Path) -> None:
    write(tmp_path / "sys/module/amdgpu/version", "6.14.5\n")
    device = tmp_path / "sys/class/drm/card1/device"
    write(device / "vbios_version", "113-M3550101-100\n")
    write(device / "fw_version/mec_fw_version", "0x000000b1\n")
    assert driver_facts(tmp_path / "proc", tmp_path / "sys") == {
        "driver.amdgpu": "6.14.5",
        "firmware.card1.vbios": "113-M3550101-100",
        "firmware.card1.mec": "0x000000b1",
    }


def test_a_machine_without_a_gpu(tmp_path: Path) -> None:
    assert driver_facts(tmp_path / "proc", tmp_path / "sys") == {}
