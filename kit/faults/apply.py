"""Injects faults in front of the engine: it gets altered copies, while oracle and peer read the originals."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from safetensors.numpy import load_file, save_file

from kit.faults.catalogue import FAULTS
from kit.names import unknown
from kit.plan import InjectedFault

Adapters: TypeAlias = Mapping[str, Path]
"""Folder of each adapter, by the name under which it is served."""


def served_adapters(faults: tuple[InjectedFault, ...], adapters: Adapters, scratch: Path) -> dict[str, Path]:
    """The adapters that the engine is given: the originals without faults, else altered copies below `scratch`.

    Raises:
        UsageFault: an unknown fault.
    """
    served = dict(adapters)
    for place, fault in enumerate(faults):
        if fault.name not in FAULTS:
            raise unknown("fault", fault.name, FAULTS)
        if act := _ACTIONS.get(fault.name):  # else it acts on something else
            served = act(fault, served, scratch / "faults" / f"{place}-{fault.name}")
    return served


def _scale(fault: InjectedFault, adapters: Adapters, folder: Path) -> dict[str, Path]:
    def alter(copy: Path) -> None:
        path = copy / "adapter_config.json"
        config = json.loads(path.read_text())
        config["lora_alpha"] *= fault.strength
        path.write_text(json.dumps(config))

    return _copies(adapters, folder, alter)


def _silence(fault: InjectedFault, adapters: Adapters, folder: Path) -> dict[str, Path]:
    def alter(copy: Path) -> None:
        path = copy / "adapter_model.safetensors"
        tensors = {
            name: np.zeros_like(tensor) if ".lora_B." in name else tensor for name, tensor in load_file(path).items()
        }
        save_file(tensors, path, metadata={"format": "pt"})

    return _copies(adapters, folder, alter)


def _swap(fault: InjectedFault, adapters: Adapters, folder: Path) -> dict[str, Path]:
    names = sorted(adapters)
    return {name: adapters[other] for name, other in zip(names, [*names[1:], *names[:1]], strict=True)}


def _copies(adapters: Adapters, folder: Path, alter: Callable[[Path], None]) -> dict[str, Path]:
    copies = {}
    for name, original in adapters.items():
        copy = copies[name] = folder / name
        copy.mkdir(parents=True, exist_ok=True)
        for file in original.iterdir():
            shutil.copyfile(file, copy / file.name)
        alter(copy)
    return copies


_ACTIONS: dict[str, Callable[[InjectedFault, Adapters, Path], dict[str, Path]]] = {
    "adapter-scaling": _scale,
    "adapter-missing": _silence,
    "adapters-swapped": _swap,
}
