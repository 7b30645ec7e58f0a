"""Brings faults into the engine's own processes, through SGLang's plugin framework; see `kit.faults.engine` for what they do.

A folder below the session's scratch holds a distribution with nothing but an entry point. SGLang finds it on the import path in
the session's process and in each scheduler, which inherit path and environment. Without such a fault nothing of this is loaded.
"""

import os
import sys
from pathlib import Path

from kit.errors import EnvironmentFault
from kit.faults.catalogue import FAULTS
from kit.faults.engine_active import FOLDER, marked, write_active
from kit.faults.process_catalogue import SIGNALS
from kit.paths import package_folder
from kit.plan import InjectedFault

GROUP = "sglang.srt.plugins"
NAME = "kit-faults"
_METADATA = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1\n"
_ENTRY = f"[{GROUP}]\n{NAME} = kit.faults.engine:register\n"
_ONLY = "SGLANG_PLUGINS"


class EnginePlugin:
    """The plugin of one session.

    Attributes:
        folder: of the active faults and the marks of processes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def activate(self, faults: tuple[InjectedFault, ...]) -> None:
        """Make those of these faults that act inside the engine the active ones, from its next batch on."""
        write_active(self.folder, {f.name: f.strength for f in faults if _acts_inside(f)})

    def confirm(self, schedulers: int) -> None:
        """See that the engine that was started has the hooks.

        Raises:
            EnvironmentFault: fewer processes than there are schedulers have loaded them, or one lacks a hooked function.
        """
        from kit.faults.engine import hooks
        from kit.faults.engine_active import ActiveFaults

        wanted = set(hooks(ActiveFaults(self.folder)))
        loaded = {pid: set(names) for pid, names in marked(self.folder).items() if pid != os.getpid()}
        lacking = sorted({name for names in loaded.values() for name in wanted - names})
        if lacking:
            raise EnvironmentFault(
                f"this SGLang lacks what a fault acts on: {', '.join(lacking)}", "use SGLang 0.5.17 to 0.5.19"
            )
        if len(loaded) < schedulers:
            problem = f"{len(loaded)} of {schedulers} schedulers of the engine loaded the injected faults"
            raise EnvironmentFault(
                problem, f"look for 'plugin' in the session's log; {_ONLY} must not leave out {NAME}"
            )


def needs_plugin(faults: tuple[InjectedFault, ...]) -> bool:
    """Whether one of these faults acts inside the engine."""
    return any(map(_acts_inside, faults))


def _acts_inside(fault: InjectedFault) -> bool:
    return FAULTS[fault.name].acts_on == "engine" or fault.name in SIGNALS


def install_plugin(faults: tuple[InjectedFault, ...], scratch: Path) -> EnginePlugin:
    """Put the plugin where SGLang finds it, with these faults active. Call it before SGLang is imported.

    Raises:
        OSError: `scratch` cannot be written.
    """
    place = scratch / "faults" / "plugin"
    info = place / f"{NAME.replace('-', '_')}-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(_METADATA)
    (info / "entry_points.txt").write_text(_ENTRY)
    sys.path.insert(0, str(place))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(place), str(package_folder().parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    plugin = EnginePlugin(scratch / "faults" / "active")
    plugin.activate(faults)
    os.environ[FOLDER] = str(plugin.folder)
    if chosen := os.environ.get(_ONLY):
        os.environ[_ONLY] = f"{chosen},{NAME}"
    return plugin
