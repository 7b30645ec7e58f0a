"""Injects faults around the engine: it gets altered copies of adapters, or its answers are altered on the way back.

Oracle and peer read the originals. An adapter without the modules that a fault alters is served as it is.
"""

import json
import math
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from kit.faults.adapter_changes import OF_CONFIG, OF_TENSORS
from kit.faults.catalogue import FAULTS
from kit.names import unknown
from kit.plan import InjectedFault

Adapters: TypeAlias = Mapping[str, Path]
"""Folder of each adapter, by the name under which it is served."""

Values: TypeAlias = npt.NDArray[np.float64]


def served_adapters(faults: tuple[InjectedFault, ...], adapters: Adapters, scratch: Path) -> dict[str, Path]:
    """The adapters that the engine is given: the originals without faults, else altered copies below `scratch`.

    Raises:
        UsageFault: an unknown fault.
    """
    served = dict(adapters)
    for place, fault in enumerate(faults):
        folder = scratch / "faults" / f"{place}-{_known(fault).name}"
        if fault.name in OF_CONFIG:
            served = _copies(served, folder, partial(_alter_config, fault))
        elif fault.name in OF_TENSORS:
            served = _copies(served, folder, partial(_alter_tensors, fault))
        elif fault.name == "adapters-swapped":
            names = sorted(served)
            served = {name: served[other] for name, other in zip(names, [*names[1:], *names[:1]], strict=True)}
        elif fault.name == "adapters-one-for-all":
            served = dict.fromkeys(served, served[min(served)])
    return served


def served_logprobs(faults: tuple[InjectedFault, ...], logprobs: Values) -> Values:
    """What is made of the engine's answer for one request, [positions], nat: itself without faults.

    Raises:
        UsageFault: an unknown fault.
    """
    for fault in faults:
        if alter := _OF_ANSWERS.get(_known(fault).name):
            logprobs = alter(logprobs)
    return logprobs


def _known(fault: InjectedFault) -> InjectedFault:
    if fault.name not in FAULTS:
        raise unknown("fault", fault.name, FAULTS)
    return fault


def _copies(adapters: Adapters, folder: Path, alter: Callable[[Path], None]) -> dict[str, Path]:
    copies = {}
    for name, original in adapters.items():
        copy = copies[name] = folder / name
        copy.mkdir(parents=True, exist_ok=True)
        for file in original.iterdir():
            shutil.copyfile(file, copy / file.name)
        alter(copy)
    return copies


def _alter_config(fault: InjectedFault, copy: Path) -> None:
    path = copy / "adapter_config.json"
    config = json.loads(path.read_text())
    OF_CONFIG[fault.name](config, fault.strength)
    path.write_text(json.dumps(config))


def _alter_tensors(fault: InjectedFault, copy: Path) -> None:
    path = copy / "adapter_model.safetensors"
    tensors = load_file(path)
    OF_TENSORS[fault.name](tensors, fault.strength)
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


def _shift_one(logprobs: Values) -> Values:
    """The value in the middle is the next one's."""
    altered, middle = logprobs.copy(), (len(logprobs) - 1) // 2
    altered[middle : middle + 1] = logprobs[middle + 1 : middle + 2] if len(logprobs) > 1 else logprobs
    return altered


def _shift_all(logprobs: Values) -> Values:
    return np.roll(logprobs, 1)


def _lose_last(logprobs: Values) -> Values:
    altered = logprobs.copy()
    altered[-1:] = np.nan
    return altered


_OF_ANSWERS: dict[str, Callable[[Values], Values]] = {
    "position-shifted": _shift_one,
    "positions-shifted": _shift_all,
    "answers-in-bits": lambda logprobs: logprobs / math.log(2.0),
    "answer-last-lost": _lose_last,
}
