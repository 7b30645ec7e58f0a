"""Runs pip, and turns each way in which it fails into one line."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence

from kit.errors import EnvironmentFault, ImageFault, KitError

_LIMIT_SECONDS = 2 * 3600
_OFFLINE_SIGNS = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "NameResolutionError",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "Connection refused",
    "Max retries exceeded",
    "Read timed out",
)
_WRONG_HASH = re.compile(r"^\s+\S+ from (?P<url>\S+?)(?:#\S*)?(?: \(.*\))?:?$", re.MULTILINE)
_NOT_FOUND = re.compile(r"No matching distribution found for (?P<requirement>[^\n]+)")
_CONFLICT = re.compile(r"Cannot install (?P<what>[^\n]+?) because these package versions have conflicting")
_SOURCES = "PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS"
_CPU_TORCH = re.compile(r"^torch\s*==\s*\S+\+cpu", re.IGNORECASE)


def run_pip(*arguments: str) -> None:
    """Run pip of this Python, quietly.

    Raises:
        ImageFault: a wheel is not to be had, does not match its hash, or requirements contradict each other.
        EnvironmentFault: no pip, no network, or a full disk.
    """
    quiet = {
        "LC_ALL": "C",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_PROGRESS_BAR": "off",
        "PIP_NO_COLOR": "1",
    }
    command = [sys.executable, "-m", "pip", *arguments]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **quiet},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(
            f"pip did not end within {_LIMIT_SECONDS} s", "look at the network, then try again"
        ) from None
    if done.returncode:
        raise pip_fault(done.stdout)


def pip_fault(output: str) -> KitError:
    """The fault that pip's output tells of."""
    if "No module named pip" in output:
        return EnvironmentFault(f"{sys.executable} has no pip", "install it: python -m ensurepip")
    if "No space left on device" in output:
        return EnvironmentFault(
            "the disk is full", "free space, or set KIT_CACHE and TMPDIR to folders on another disk"
        )
    if "DO NOT MATCH THE HASHES" in output:
        names = sorted({match["url"].rsplit("/", 1)[-1] for match in _WRONG_HASH.finditer(output)})
        return ImageFault(
            f"{', '.join(names) or 'a wheel'}: its SHA-256 is not the one in the lock",
            "find out who changed the file; a lock is only renewed with 'kit images lock'",
        )
    if conflict := _CONFLICT.search(output):
        return ImageFault(f"the requirements contradict each other: {conflict['what']}", "change the definition")
    missing = _NOT_FOUND.search(output)
    if any(sign in output for sign in _OFFLINE_SIGNS) and (missing is None or "(from versions: none)" in output):
        return EnvironmentFault(
            "pip cannot reach its package index",
            "check network and proxy, or point pip to a folder of wheels (PIP_FIND_LINKS)",
        )
    if missing:
        return _not_found(missing["requirement"].split(" (from ", 1)[0].strip())
    return ImageFault(
        f"pip failed: {_last_error(output)}", "see 'python -m pip --version' and the requirement it names"
    )


def _not_found(requirement: str) -> ImageFault:
    if _CPU_TORCH.match(requirement):
        return ImageFault(
            f"pip finds no wheel of {requirement}",
            f"make PyTorch's CPU wheel index or a folder with the wheel known to pip ({_SOURCES})",
        )
    return ImageFault(
        f"pip finds no wheel of {requirement} for the image's Python and platform",
        f"correct the definition, or make an index or folder that has it known to pip ({_SOURCES})",
    )


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors: Sequence[str] = [line for line in lines if line.startswith("ERROR")] or lines
    return errors[-1].removeprefix("ERROR:").strip()[:300] if errors else "it said nothing"
