"""The worker as a child process, for machines without a container engine and for jobs that already are inside the image."""

import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from kit.errors import EnvironmentFault
from kit.host.runtime import Ending, ending_of
from kit.process import adopt_orphans, end_descendants
from kit.secrets import is_secret


class LocalRuntime:
    """Runs ``python -m kit.worker`` in this Python, in a session of its own.

    Args:
        environment: further variables of the worker.

    Raises:
        EnvironmentFault: this Python has no SGLang.
    """

    name: Literal["local"] = "local"

    def __init__(
        self,
        run_folder: Path,
        assets_folder: Path,
        environment: Mapping[str, str] | None = None,
        pinned_folder: Path | None = None,
    ) -> None:
        if module := missing_module():
            raise EnvironmentFault(
                f"{module} is not installed in this Python ({sys.executable}), so there is nothing to run locally",
                "run 'make setup', or use --runtime docker",
            )
        self._folder = run_folder
        self._command = [sys.executable, "-m", "kit.worker", str(run_folder), "--assets", str(assets_folder)]
        if pinned_folder is not None:
            self._command += ["--pinned", str(pinned_folder)]
        self._environment = dict(environment or {})
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, str]:
        """Start the worker; its output goes to ``logs/worker.log``."""
        adopt_orphans()
        with (self._folder / "logs" / "worker.log").open("wb") as output:
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=worker_environment() | self._environment,
            )
        return {"python": sys.executable, "platform": platform.platform(), "pid": str(self._child.pid)}

    def ended(self) -> Ending | None:
        """How the worker ended; what it left running is ended here."""
        if self._child is None or (code := self._child.poll()) is None:
            return None
        left = self.stop()
        return ending_of(code, "worker", left)

    def stop(self) -> tuple[str, ...]:
        """Kill the worker and every descendant."""
        if self._child is None:
            return ()
        ended = end_descendants()
        self._child.wait()
        return ended


def missing_module() -> str | None:
    """What a worker needs and this Python has not; None where it has all."""
    return next((name for name in ("sglang", "torch") if importlib.util.find_spec(name) is None), None)


def worker_environment() -> dict[str, str]:
    """This process's environment without secrets, and with model hubs switched off."""
    kept = {name: value for name, value in os.environ.items() if not is_secret(name)}
    return kept | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
