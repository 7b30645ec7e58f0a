"""What the host says about itself and about kit's own sources, for the report."""

import os
import platform
import subprocess
from pathlib import Path

import psutil

from kit.host.drivers import driver_facts
from kit.image import source_digest
from kit.paths import package_folder


def host_facts() -> dict[str, str]:
    """Host name, kernel, processor, cores, memory, drivers, and which kit this is."""
    return {
        "hostname": platform.node(),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cpus": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "revision": source_revision(),
        "sources": source_digest(),
    } | driver_facts()


def _cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def source_revision() -> str:
    """The git commit of kit's checkout, with ``+changes`` where the tree is not clean; "released" outside a checkout."""
    folder = package_folder().parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        top = _git(folder, "rev-parse", "--show-toplevel")
        if Path(top) != folder:
            return "released"
        return commit + ("+changes" if _git(folder, "status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return "released"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
