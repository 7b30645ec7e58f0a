"""The container of a profile: which settings it gets, as data, and how the engine is told.

Strict by default: no network, no capabilities, no new privileges, a read-only root, the caller's own user.
"""

import contextlib
import os
import pwd
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kit.errors import UsageFault
from kit.host.devices import KEEP_GROUPS, ContainerDevices
from kit.profile import Profile

RUN_FOLDER = "/kit/run"
ASSETS_FOLDER = "/kit/assets"
PINNED_FOLDER = "/kit/pinned"
RUN_LABEL = "kit.run"
OWNER_LABEL = "kit.owner"
TMPFS = "mode=1777,exec"
LOG_LIMITS = {"max-size": "16m", "max-file": "1"}
_OFFLINE = {
    "HOME": "/tmp",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}
_CAPABILITIES = ("SYS_PTRACE",)
# A word in angle brackets stands in a dry run for what only a machine knows.
_DEVICE = re.compile(r"/dev/kfd|/dev/dri/(renderD[0-9]+|<[^/<>]+>)")
_CDI = re.compile(r"nvidia\.com/gpu=([0-9]+|<[^<>]+>)")
_NVIDIA_ID = re.compile(r"GPU-[0-9A-Za-z-]+")
_GROUP = re.compile(rf"[1-9][0-9]*|{KEEP_GROUPS}|<[^<>]+>")
_SYSTEM = tuple(map(Path, ("/dev", "/proc", "/sys", "/etc", "/boot")))
_HOLD_SOCKETS = (Path("/run"), Path("/var/run"))


@dataclass(frozen=True)
class ContainerSpec:
    """Everything the engine is told about one container; `image` is an image id or tag.

    `memory` and `shm` are bytes; `devices` is what it gets to reach its GPUs; `pinned_folder` is where the pinned assets lie,
    None where the run needs none.

    Raises:
        UsageFault: a mounted folder is the root, the home or a system folder of the host, or holds one of them; or its name is
            no UTF-8.
        ValueError: a device, group or capability that no profile can lead to.
    """

    image: str
    run_id: str
    run_folder: Path
    assets_folder: Path
    memory: int
    shm: int
    pids: int
    user: str
    devices: ContainerDevices = field(default_factory=ContainerDevices)
    capabilities: tuple[str, ...] = ()
    seccomp: str = "default"
    pinned_folder: Path | None = None

    def __post_init__(self) -> None:
        for folder in (self.run_folder, *self.read_only.values()):
            _refuse_wide(folder)
        if excess := [*self._unforeseen()]:
            raise ValueError(f"no container gets {excess[0]}")

    def _unforeseen(self) -> Iterator[str]:
        yield from (name for name in self.capabilities if name not in _CAPABILITIES)
        yield from (path for path in self.devices.devices if not _DEVICE.fullmatch(path))
        yield from (name for name in self.devices.cdi if not _CDI.fullmatch(name))
        yield from (gpu for gpu in self.devices.gpu_ids if not _NVIDIA_ID.fullmatch(gpu))
        yield from (group for group in self.devices.groups if not _GROUP.fullmatch(group))

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the worker."""
        return _OFFLINE | self.devices.environment

    @property
    def name(self) -> str:
        """The container's name."""
        return f"kit-{self.run_id}"

    @property
    def command(self) -> list[str]:
        """What runs in it."""
        pinned = ["--pinned", PINNED_FOLDER] if self.pinned_folder else []
        return ["python", "-m", "kit.worker", RUN_FOLDER, "--assets", ASSETS_FOLDER, *pinned]

    @property
    def read_only(self) -> dict[str, Path]:
        """Folders of this machine that it may read, by their place in the container."""
        return {ASSETS_FOLDER: self.assets_folder} | ({PINNED_FOLDER: self.pinned_folder} if self.pinned_folder else {})

    @property
    def security(self) -> list[str]:
        """The engine's security options."""
        options = ["no-new-privileges"]
        if self.seccomp != "default":
            options.append(f"seccomp={self.seccomp}")
        return options


def container_spec(
    profile: Profile,
    image: str,
    run_id: str,
    run_folder: Path,
    assets_folder: Path,
    devices: ContainerDevices,
    user: str,
    pinned_folder: Path | None = None,
) -> ContainerSpec:
    """The container of `profile`. Reads no device and asks no engine: the same on every machine.

    Args:
        user: user and group inside (`container_user`).
    """
    wanted = profile.container
    return ContainerSpec(
        image=image,
        run_id=run_id,
        run_folder=run_folder,
        assets_folder=assets_folder,
        memory=int(wanted.memory),
        shm=int(wanted.shm),
        pids=wanted.pids,
        user=user,
        devices=devices,
        capabilities=wanted.capabilities,
        seccomp=wanted.seccomp,
        pinned_folder=pinned_folder,
    )


def container_user(rootless: bool = False) -> str:
    """The caller, as the container names it: under a rootless engine the caller is root inside, and nobody outside."""
    return "0:0" if rootless else f"{os.getuid()}:{os.getgid()}"


def _refuse_wide(folder: Path) -> None:
    """A folder below the home is mounted as it is; the home itself, what holds it, and what the system lives in never are.

    Neither is one whose name is no UTF-8: engines are told in JSON.
    """
    homes = {Path(os.environ.get("HOME", "/"))}
    with contextlib.suppress(KeyError):
        homes.add(Path(pwd.getpwuid(os.getuid()).pw_dir))
    whole = (*homes, *_HOLD_SOCKETS)
    shown = os.fsencode(folder).decode(errors="backslashreplace")
    if shown != str(folder):
        raise UsageFault(f"the name of folder {shown} is no UTF-8, and no container engine takes it", "name another")
    for place in (Path(os.path.abspath(folder)), folder.resolve()):  # noqa: PTH100 - as the engine is told, and where it leads
        holds = place == Path("/") or any(inner.is_relative_to(place) for inner in whole)
        if holds or any(place.is_relative_to(system) for system in _SYSTEM):
            raise UsageFault(f"the folder {folder} is not handed to a container", "name a folder of its own")


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
        *(f"--device {device}" for device in (*spec.devices.devices, *spec.devices.cdi)),
        *(f"--group-add {group}" for group in spec.devices.groups),
        *([f"--gpus device={','.join(spec.devices.gpu_ids)}"] if spec.devices.gpu_ids else []),
        *(f"--env {name}={value}" for name, value in spec.environment.items()),
        f"--mount type=bind,source={spec.run_folder},target={RUN_FOLDER}",
        *(f"--mount type=bind,source={path},target={place},readonly" for place, path in spec.read_only.items()),
        *(f"--log-opt {name}={value}" for name, value in LOG_LIMITS.items()),
    ]
    return [*lines, spec.image, *[" ".join(spec.command)]]
