"""Driver and firmware of the GPUs, as the host's kernel tells them. Nothing is started, no library is loaded."""

from pathlib import Path

_FIRMWARE_LINES = {"Video BIOS": "vbios", "GPU Firmware": "gsp"}


def driver_facts(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> dict[str, str]:
    """``driver.nvidia``, ``driver.amdgpu``, ``firmware.<device>.<name>``; empty on a machine without such a GPU."""
    facts: dict[str, str] = {}
    for module in ("nvidia", "amdgpu"):
        if version := _text(sys / "module" / module / "version"):
            facts[f"driver.{module}"] = version
    for information in sorted(proc.glob("driver/nvidia/gpus/*/information")):
        for line in _text(information).splitlines():
            key, _, value = line.partition(":")
            if short := _FIRMWARE_LINES.get(key.strip()):
                facts[f"firmware.{information.parent.name}.{short}"] = value.strip()
    for vbios in sorted(sys.glob("class/drm/card*/device/vbios_version")):
        device = vbios.parent
        facts[f"firmware.{device.parent.name}.vbios"] = _text(vbios)
        for file in sorted(device.glob("fw_version/*_fw_version")):
            facts[f"firmware.{device.parent.name}.{file.name.removesuffix('_fw_version')}"] = _text(file)
    return {key: value for key, value in facts.items() if value}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
