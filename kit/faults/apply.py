"""Injects faults around the engine: it gets altered copies of adapters, or its answers are altered on the way back.

Oracle and peer read the originals. An adapter without the modules that a fault alters is served as it is.
"""

import json
import math
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from kit.faults.catalogue import FAULTS
from kit.names import unknown
from kit.plan import InjectedFault

Adapters: TypeAlias = Mapping[str, Path]
"""Folder of each adapter, by the name under which it is served."""

Values: TypeAlias = npt.NDArray[np.float64]
Tensors: TypeAlias = dict[str, npt.NDArray[np.float32]]


def served_adapters(faults: tuple[InjectedFault, ...], adapters: Adapters, scratch: Path) -> dict[str, Path]:
    """The adapters that the engine is given: the originals without faults, else altered copies below `scratch`.

    Raises:
        UsageFault: an unknown fault.
    """
    served = dict(adapters)
    for place, fault in enumerate(faults):
        folder = scratch / "faults" / f"{place}-{_known(fault).name}"
        if fault.name in _OF_CONFIG:
            served = _copies(served, folder, partial(_alter_config, fault))
        elif fault.name in _OF_TENSORS:
            served = _copies(served, folder, partial(_alter_tensors, fault))
        elif fault.name == "adapters-swapped":
            names = sorted(served)
            served = {name: served[other] for name, other in zip(names, [*names[1:], *names[:1]], strict=True)}
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
    _OF_CONFIG[fault.name](config, fault.strength)
    path.write_text(json.dumps(config))


def _alter_tensors(fault: InjectedFault, copy: Path) -> None:
    path = copy / "adapter_model.safetensors"
    tensors = load_file(path)
    _OF_TENSORS[fault.name](tensors)
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


def _scale(config: dict[str, Any], factor: float) -> None:
    config["lora_alpha"] *= factor


def _mistake_root(config: dict[str, Any], _: float) -> None:
    """Through alpha, since an engine may not read use_rslora: α/√r is α·√r over r, and the other way round."""
    root = math.sqrt(config["r"])
    config["lora_alpha"] *= 1.0 / root if config["use_rslora"] else root


def _silence(mark: str) -> Callable[[Tensors], None]:
    """B = 0 in every module whose name holds `mark`."""

    def alter(tensors: Tensors) -> None:
        for name, tensor in tensors.items():
            if mark in name and (".lora_B." in name or ".lora_embedding_B" in name):
                tensors[name] = np.zeros_like(tensor)

    return alter


def _silence_last_layer(tensors: Tensors) -> None:
    layers = [int(name.split(".layers.", 1)[1].split(".", 1)[0]) for name in tensors if ".layers." in name]
    if layers:
        _silence(f".layers.{max(layers)}.")(tensors)


def _swap_query_and_key(tensors: Tensors) -> None:
    """A, and B where the shapes allow, as where both have as many heads."""
    for query in [name for name in tensors if ".q_proj." in name]:
        key = query.replace(".q_proj.", ".k_proj.")
        if key in tensors and tensors[query].shape == tensors[key].shape:
            tensors[query], tensors[key] = tensors[key], tensors[query]


def _transpose_query(tensors: Tensors) -> None:
    """(B A)ᵀ = Aᵀ Bᵀ where B A is square; else B is read in the other memory order, the same mistake."""
    for a_name in [name for name in tensors if ".q_proj.lora_A" in name]:
        b_name = a_name.replace(".lora_A", ".lora_B")
        a, b = tensors[a_name], tensors[b_name]
        if a.shape == b.shape[::-1]:
            tensors[a_name], tensors[b_name] = b.T, a.T
        else:
            tensors[b_name] = b.reshape(b.shape[::-1]).T


def _shift_one(logprobs: Values) -> Values:
    """The value in the middle is the next one's."""
    altered, middle = logprobs.copy(), (len(logprobs) - 1) // 2
    altered[middle : middle + 1] = logprobs[middle + 1 : middle + 2] if len(logprobs) > 1 else logprobs
    return altered


def _shift_all(logprobs: Values) -> Values:
    return np.roll(logprobs, 1)


_OF_CONFIG: dict[str, Callable[[dict[str, Any], float], None]] = {
    "adapter-scaling": _scale,
    "adapter-scaling-root": _mistake_root,
}
_OF_TENSORS: dict[str, Callable[[Tensors], None]] = {
    "adapter-missing": _silence(""),
    "adapter-layer-dropped": _silence_last_layer,
    "adapter-value-dropped": _silence(".layers.0.self_attn.v_proj."),
    "adapter-query-key-swapped": _swap_query_and_key,
    "adapter-query-transposed": _transpose_query,
}
_OF_ANSWERS: dict[str, Callable[[Values], Values]] = {
    "position-shifted": _shift_one,
    "positions-shifted": _shift_all,
}
