"""Faults of attention kernels: the source of the real kernel is changed before it is loaded, or the arguments of its call."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kit.attention_spec import AttentionSpec, Cached, GroupedDecode
from kit.errors import UsageFault
from kit.plan import InjectedFault


@dataclass(frozen=True)
class Change:
    """A text of a kernel module and what stands in its place; ``{strength}`` becomes the fault's strength."""

    module: str
    text: str
    instead: str


_DECODE, _EXTEND, _PREFILL = "decode_attention", "extend_attention", "prefill_attention"
_SPLIT_END = "split_kv_end = tl.minimum(split_kv_start + kv_len_per_split, cur_batch_seq_len"
_GROUP = "cur_kv_head = cur_head // kv_group_num"
_SECOND_GROUP = "cur_kv_head = tl.where(cur_head == kv_group_num, 0, cur_head // kv_group_num)"
_TILE = "cur_head_id // tl.cdiv(kv_group_num, BLOCK_H)"
_LSE = "Att_Lse + offs_mid_o_1,\n            e_max + tl.log(e_sum),\n"
_CAP = "qk = logit_cap * tanh(qk / logit_cap)"
_BLOCKS = "range(split_kv_start, split_kv_end, BLOCK_N)"
_WHOLE_BLOCKS = "range(split_kv_start, split_kv_start + (split_kv_end - split_kv_start) // BLOCK_N * BLOCK_N, BLOCK_N)"

SOURCES: Final[dict[str, tuple[Change, ...]]] = {
    "kernel-mask-off-by-one": (
        Change(_DECODE, f"{_SPLIT_END})", f"{_SPLIT_END} - 1)"),
        Change(
            _EXTEND,
            "mask_causual = (cur_block_m * BLOCK_M + offs_m[:, None]) >= (",
            "mask_causual = (cur_block_m * BLOCK_M + offs_m[:, None] + 1) >= (",
        ),
        Change(_EXTEND, "q_idx >= k_idx_in_extend", "q_idx + 1 >= k_idx_in_extend"),
        Change(_PREFILL, "(offs_m[:, None] >= (start_n + offs_n", "(offs_m[:, None] + 1 >= (start_n + offs_n"),
    ),
    "kernel-wrong-group": (
        Change(_DECODE, f"cur_kv_head = {_TILE}", f"cur_kv_head = tl.where(cur_head_id == 1, 0, {_TILE})"),
        Change(_DECODE, _GROUP, _SECOND_GROUP),
        Change(_EXTEND, _GROUP, _SECOND_GROUP),
        Change(_PREFILL, _GROUP, _SECOND_GROUP),
    ),
    "kernel-empty-split": (
        Change(
            _DECODE,
            "if split_kv_end > split_kv_start:\n            tv",
            "if split_kv_id < kv_splits:\n            tv",
        ),
    ),
    "kernel-workspace-unwritten": (
        Change(_DECODE, f"{_LSE}            mask=mask_h,", f"{_LSE}            mask=mask_h & (split_kv_id > 0),"),
        Change(_DECODE, f"{_LSE}        )", f"{_LSE}            mask=split_kv_id > 0,\n        )"),
    ),
    "kernel-cap-dropped": (Change(_DECODE, _CAP, "qk = qk * 1.0"), Change(_EXTEND, _CAP, "qk = qk * 1.0")),
    "kernel-last-block-dropped": (
        Change(_DECODE, _BLOCKS, _WHOLE_BLOCKS),
        Change(_EXTEND, "range(0, prefix_end, BLOCK_N)", "range(0, prefix_end // BLOCK_N * BLOCK_N, BLOCK_N)"),
    ),
    "kernel-one-head-scaled": (
        Change(
            _DECODE,
            "acc / e_sum * v_scale,",
            "acc / e_sum * v_scale * tl.where(cur_head == 37, {strength}, 1.0),",
        ),
    ),
}
"""By fault, the changes of sources. The texts stand in SGLang 0.5.17 to 0.5.19."""


def _one_over_size(spec: AttentionSpec, arguments: dict[str, Any]) -> None:
    for name in ("sm_scale", "sm_scale_withk"):
        if name in arguments:
            arguments[name] = arguments[name] ** 2


def _window_one_short(spec: AttentionSpec, arguments: dict[str, Any]) -> None:
    if spec.window is None:
        return
    if not isinstance(spec, GroupedDecode):
        arguments["sliding_window_size"] = max(1, spec.window - 1)
        return
    starts = arguments["kv_indptr"].tolist()
    kept = [range(a + (b - a > spec.window), b) for a, b in pairwise(starts)]
    lengths = [0, *(len(part) for part in kept)]
    arguments["kv_indices"] = arguments["kv_indices"][[place for part in kept for place in part]]
    arguments["kv_indptr"] = arguments["kv_indptr"].new_tensor(lengths).cumsum(0).to(arguments["kv_indptr"].dtype)


def _pages_of_16_bits(spec: AttentionSpec, arguments: dict[str, Any]) -> None:
    if isinstance(spec, Cached):
        arguments["kv_indices"] = arguments["kv_indices"] & 0xFFFF


ARGUMENTS: Final[dict[str, Callable[[AttentionSpec, dict[str, Any]], None]]] = {
    "kernel-scale-one-over-size": _one_over_size,
    "kernel-window-one-short": _window_one_short,
    "kernel-pages-16-bits": _pages_of_16_bits,
}
"""By fault, a change of a call's arguments."""


def changed_module(name: str, faults: tuple[InjectedFault, ...], scratch: Path) -> ModuleType | None:
    """The kernel module `name` with the faults in its source, in place of the real one; None where no fault is about it.

    Raises:
        UsageFault: the installed source has no place for a fault.
    """
    short = name.rpartition(".")[2]
    changes = [(f, c) for f in faults for c in SOURCES.get(f.name, ()) if c.module == short]
    found = importlib.util.find_spec(name) if changes else None
    if found is None or found.origin is None:
        return None
    source = Path(found.origin).read_text()
    for fault, change in changes:
        if change.text not in source:
            raise UsageFault(f"the fault '{fault.name}' finds no place in {name}", "use SGLang 0.5.17 to 0.5.19")
        source = source.replace(change.text, change.instead.format(strength=fault.strength))
    path = scratch / "faults" / f"{short}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def changed_arguments(
    faults: tuple[InjectedFault, ...],
) -> tuple[Callable[[AttentionSpec, dict[str, Any]], None], ...]:
    """What the faults do to the arguments of every call."""
    return tuple(ARGUMENTS[fault.name] for fault in faults if fault.name in ARGUMENTS)


def changed_kernels() -> frozenset[str]:
    """Short names of the modules that faults change."""
    return frozenset(change.module for changes in SOURCES.values() for change in changes)
