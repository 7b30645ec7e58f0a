"""Facts about the stack and the device, as torch and the driver report them."""

import importlib.metadata
import platform
from collections.abc import Iterable
from pathlib import Path

from kit.errors import EnvironmentFault


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Fact per package, its version; packages that are not installed are left out."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def device_facts(device: str) -> dict[str, str]:
    """Name and architecture of ``cpu`` or ``cuda`` (ROCm too), and the runtime's version.

    An AMD GPU is known by gcnArchName without feature flags, not by product name, which stripped images get wrong.

    Raises:
        EnvironmentFault: torch sees no such device.
    """
    if device == "cpu":
        return {"device": processor_name(), "architecture": platform.machine()}
    import torch

    if not torch.cuda.is_available():
        raise EnvironmentFault("torch sees no GPU", "check the driver and that the container was given its devices")
    properties = torch.cuda.get_device_properties(0)
    facts = {"device": str(properties.name), "devices": str(torch.cuda.device_count())}
    if torch.version.hip:
        facts["architecture"] = str(properties.gcnArchName).split(":", 1)[0]
        facts["hip"] = str(torch.version.hip)
    else:
        facts["architecture"] = f"sm_{properties.major}{properties.minor}"
        facts["cuda"] = str(torch.version.cuda)
    return facts


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Model name of the processor, else the machine's architecture."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
