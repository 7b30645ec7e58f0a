"""The container of a profile: which settings it gets, as data, and how the engine is told.

Strict by default: no network, no capabilities, no new privileges, a read-only root, the caller's own user.
"""

import grp
import os
from dataclasses import dataclass, field
from pathlib import Path

from kit.errors import EnvironmentFault
from kit.profile import Profile

RUN_FOLDER = "/kit/run"
ASSETS_FOLDER = "/kit/assets"
RUN_LABEL = "kit.run"
TMPFS = "mode=1777,exec"
LOG_LIMITS = {"max-size": "16m", "max-file": "1"}
_OFFLINE = {
    "HOME": "/tmp",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True)
class ContainerSpec:
    """Everything the engine is told about one container; `image` is an image id or tag.

    `memory` and `shm` are bytes. `devices` are host paths, `groups` names or numbers as the profile gives them.
    """

    image: str
    run_id: str
    run_folder: Path
    assets_folder: Path
    memory: int
    shm: int
    pids: int
    user: str
    gpus: int = 0
    gpu_request: bool = False
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    seccomp: str = "default"
    environment: dict[str, str] = field(default_factory=lambda: dict(_OFFLINE))

    @property
    def name(self) -> str:
        """The container's name."""
        return f"kit-{self.run_id}"

    @property
    def command(self) -> list[str]:
        """What runs in it."""
        return ["python", "-m", "kit.worker", RUN_FOLDER, "--assets", ASSETS_FOLDER]

    @property
    def security(self) -> list[str]:
        """The engine's security options."""
        options = ["no-new-privileges"]
        if self.seccomp != "default":
            options.append(f"seccomp={self.seccomp}")
        return options


def container_spec(profile: Profile, image: str, run_id: str, run_folder: Path, assets_folder: Path) -> ContainerSpec:
    """The container of `profile`. Reads no device and asks no engine: the same on every machine."""
    wanted = profile.container
    return ContainerSpec(
        image=image,
        run_id=run_id,
        run_folder=run_folder,
        assets_folder=assets_folder,
        memory=int(wanted.memory),
        shm=int(wanted.shm),
        pids=wanted.pids,
        user=f"{os.getuid()}:{os.getgid()}",
        gpus=profile.gpus,
        gpu_request=wanted.gpu_request,
        devices=wanted.devices,
        groups=wanted.groups,
        capabilities=wanted.capabilities,
        seccomp=wanted.seccomp,
    )


def as_command_line(spec: ContainerSpec) -> list[str]:
    """The spec as arguments of ``docker run``, one option a line, for people who read a dry run."""
    lines = [
        f"--name {spec.name}",
        f"--label {RUN_LABEL}={spec.run_id}",
        "--init",
        "--network none",
        "--read-only",
        f"--tmpfs /tmp:{TMPFS}",
        "--cap-drop ALL",
        *(f"--cap-add {name}" for name in spec.capabilities),
        *(f"--security-opt {option}" for option in spec.security),
        f"--user {spec.user}",
        f"--memory {spec.memory}",
        f"--memory-swap {spec.memory}",
        f"--shm-size {spec.shm}",
        f"--pids-limit {spec.pids}",
        *(f"--device {path}" for path in spec.devices),
        *(f"--group-add {group}" for group in spec.groups),
        *([f"--gpus {spec.gpus}"] if spec.gpu_request else []),
        *(f"--env {name}={value}" for name, value in spec.environment.items()),
        f"--mount type=bind,source={spec.run_folder},target={RUN_FOLDER}",
        f"--mount type=bind,source={spec.assets_folder},target={ASSETS_FOLDER},readonly",
        *(f"--log-opt {name}={value}" for name, value in LOG_LIMITS.items()),
    ]
    return [*lines, spec.image, *[" ".join(spec.command)]]


def device_nodes(spec: ContainerSpec, root: Path = Path("/")) -> list[str]:
    """The device nodes to hand in, with folders replaced by the nodes below them.

    Raises:
        EnvironmentFault: a device of the profile is not on this machine.
    """
    nodes: list[str] = []
    for wanted in spec.devices:
        path = root / wanted.lstrip("/")
        if path.is_dir():
            found = sorted(str(node) for node in path.iterdir() if node.is_char_device())
        else:
            found = [str(path)] if path.exists() else []
        if not found:
            raise EnvironmentFault(
                f"device {wanted} is not on this machine", "install the vendor's driver, or choose another profile"
            )
        nodes += found
    return nodes


def group_numbers(spec: ContainerSpec) -> list[str]:
    """Groups as numbers of this host: the image may know other names.

    Raises:
        EnvironmentFault: a group of the profile does not exist on this machine.
    """
    numbers = []
    for group in spec.groups:
        try:
            numbers.append(group if group.isdigit() else str(grp.getgrnam(group).gr_gid))
        except KeyError:
            raise EnvironmentFault(
                f"group {group} does not exist on this machine", "install the vendor's driver packages"
            ) from None
    return numbers
