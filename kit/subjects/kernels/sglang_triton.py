"""SGLang's Triton attention kernels, called as SGLang's ``triton_backend.py`` calls them.

Positional arguments moved between versions, so every call goes by name.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import torch

from kit.attention_spec import AttentionSpec, Cached, Extend, GroupedDecode, Prefill
from kit.subjects.kernels.engine_window import engine_window
from kit.subjects.kernels.launches import foreign, recorded_launches
from kit.subjects.kernels.library import Answer, Poison
from kit.subjects.kernels.tensors import Output, Placing, give_back, moved, no_room, starts
from kit.synthetic.attention import AttentionInputs, new_lengths

ROOTS = ("sglang.kernels.ops.attention", "sglang.srt.layers.attention.triton_ops")
"""Since SGLang 0.5.17, and before."""
MODULES = ("decode_attention", "extend_attention", "prefill_attention")


@dataclass(frozen=True)
class SGLangTriton:
    """The kernels of the installed SGLang.

    Attributes:
        decode, extend, prefill: its modules. device: ``cuda`` or ``cpu`` (interpreted).
        changes: of the arguments by name, empty except in a self-test (`kit.faults.kernels`).
    """

    decode: ModuleType
    extend: ModuleType
    prefill: ModuleType
    device: str
    facts: dict[str, str]
    changes: tuple[Callable[[AttentionSpec, dict[str, Any]], None], ...] = field(default=())

    def refuses(self, spec: AttentionSpec) -> str | None:
        """What the installed version has no argument for."""
        function = self._function(spec)
        if function is None:
            return "this SGLang has no one-pass extend kernel"
        if self.device == "cpu" and spec.dtype == "bfloat16":
            return "Triton's interpreter multiplies bfloat16 matrices as integers"
        known = inspect.signature(function).parameters
        if isinstance(spec, Cached) and spec.page_size > 1 and "page_size" not in known:
            return "this SGLang's kernel takes no page size"
        if spec.temperature_length is not None and "xai_temperature_len" not in known:
            return "this SGLang's kernel takes no temperature length"
        if spec.sinks and "sinks" not in known:
            return "this SGLang's kernel takes no sinks"
        return no_room(spec, self.device)

    def attend(self, spec: AttentionSpec, inputs: AttentionInputs, poison: Poison) -> Answer:
        """One call of the kernel that the case names."""
        placing, inputs = Placing.of(spec, self.device, poison), moved(spec, inputs)
        out = placing.output(sum(new_lengths(spec)), spec.query_heads, spec.value_dim)
        match spec:
            case GroupedDecode():
                arguments = _decode_arguments(spec, inputs, placing, out)
            case Extend(unified=True):
                arguments = _unified_arguments(spec, inputs, placing, out)
            case Extend():
                arguments = _extend_arguments(spec, inputs, placing, out)
            case Prefill():
                arguments = _prefill_arguments(spec, inputs, placing, out)
        function = self._function(spec)
        assert function is not None, "refuses() was not asked"
        for change in self.changes:
            change(spec, arguments)
        with recorded_launches() as launched:
            function(**_known(function, arguments))
            if self.device == "cuda":
                torch.cuda.synchronize()
        arguments.clear()
        give_back(spec, self.device)
        return Answer(out.values(), out.overwritten(), tuple(launched), foreign(launched, function.__module__))

    def _function(self, spec: AttentionSpec) -> Any:
        match spec:
            case GroupedDecode(dispatch=True):
                return self.decode.decode_attention_fwd
            case GroupedDecode():
                return self.decode.decode_attention_fwd_grouped
            case Extend(unified=True):
                return getattr(self.extend, "extend_attention_fwd_unified", None)
            case Extend():
                return self.extend.extend_attention_fwd
            case Prefill():
                return self.prefill.context_attention_fwd


def _known(function: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that this version has. What it lacks has a neutral value here: `refuses` saw to that."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in names}


def _scores(spec: AttentionSpec, inputs: AttentionInputs, placing: Placing) -> dict[str, Any]:
    """Arguments that decode and extend share; without quantised caches the scales of keys and values are 1."""
    sinks = None if inputs.sinks is None else placing.tensor(inputs.sinks)
    length = -1 if spec.temperature_length is None else spec.temperature_length
    scales = {"sm_scale": inputs.scale, "sm_scale_withk": inputs.scale, "k_scale": 1.0, "v_scale": 1.0}
    page_size = spec.page_size if isinstance(spec, Cached) else 1
    return scales | {
        "logit_cap": spec.logit_cap,
        "sinks": sinks,
        "xai_temperature_len": length,
        "page_size": page_size,
    }


def _decode_arguments(spec: GroupedDecode, inputs: AttentionInputs, placing: Placing, out: Output) -> dict[str, Any]:
    """A window is a shorter list of slots, as in ``update_sliding_window_buffer``."""
    first = 0 if spec.window is None else spec.window + 1
    pages = [slots[-first:] if first else slots for slots in inputs.pages]
    if spec.engine_window:
        pages = engine_window(spec, inputs, placing)
    batch, heads = len(spec.lengths), spec.query_heads
    splits = np.resize(np.array(spec.num_kv_splits), batch)
    return _scores(spec, inputs, placing) | {
        "q": placing.padded(inputs.query),
        "k_buffer": placing.cache(inputs.cache_keys),
        "v_buffer": placing.cache(inputs.cache_values),
        "o": out.rows,
        "kv_indptr": placing.integers(starts(tuple(len(slots) for slots in pages))),
        "kv_indices": placing.integers(np.concatenate(pages), torch.int64),
        "attn_logits": placing.workspace(batch, heads, spec.max_kv_splits, spec.value_dim),
        "attn_lse": placing.workspace(batch, heads, spec.max_kv_splits),
        "num_kv_splits": placing.integers(splits),
        "max_kv_splits": spec.max_kv_splits,
    }


def _extend_arguments(spec: Extend, inputs: AttentionInputs, placing: Placing, out: Output) -> dict[str, Any]:
    """With a window the caller passes only the last slots of the prefix, and where they start."""
    kept = [len(slots) if spec.window is None else min(len(slots), spec.window) for slots in inputs.pages]
    pages = [slots[len(slots) - keep :] for slots, keep in zip(inputs.pages, kept, strict=True)]
    offsets = [len(slots) - keep for slots, keep in zip(inputs.pages, kept, strict=True)]
    windowed = spec.window is not None
    return (
        _scores(spec, inputs, placing)
        | _masks(spec, inputs, placing)
        | {
            "q_extend": placing.padded(inputs.query),
            "k_extend": placing.padded(inputs.new_keys),
            "v_extend": placing.padded(inputs.new_values),
            "o_extend": out.rows,
            "k_buffer": placing.cache(inputs.cache_keys),
            "v_buffer": placing.cache(inputs.cache_values),
            "qo_indptr": placing.integers(starts(inputs.new), torch.int64),
            "kv_indptr": placing.integers(starts(tuple(kept))),
            "kv_indices": placing.integers(np.concatenate(pages), torch.int64),
            "is_causal": spec.causal,
            "max_len_extend": max(inputs.new),
            "sliding_window_size": spec.window if spec.window is not None else -1,
            "window_kv_offsets": placing.integers(offsets) if windowed else None,
            "extend_seq_lens_cpu": list(inputs.new),
        }
    )


def _masks(spec: Extend, inputs: AttentionInputs, placing: Placing) -> dict[str, Any]:
    """[new, prefix + new] of each request, flat. Causality and window are the kernel's own, so they stay out of it."""
    if not spec.tree_mask:
        return {"custom_mask": None, "mask_indptr": None}
    flat = np.concatenate([mask.ravel() for mask in inputs.tree])
    return {
        "custom_mask": torch.from_numpy(flat).to(placing.device),
        "mask_indptr": placing.integers(starts(tuple(mask.size for mask in inputs.tree)), torch.int64),
    }


def _unified_arguments(spec: Extend, inputs: AttentionInputs, placing: Placing, out: Output) -> dict[str, Any]:
    """New tokens lie in the cache too, behind everything else."""
    new = len(inputs.new_keys)
    keys = np.concatenate([inputs.cache_keys, inputs.new_keys])
    values = np.concatenate([inputs.cache_values, inputs.new_values])
    own = np.split(np.arange(len(keys) - new, len(keys)), starts(inputs.new)[1:-1])
    kept = [len(slots) if spec.window is None else min(len(slots), spec.window) for slots in inputs.pages]
    pages = [
        np.concatenate([slots[len(slots) - keep :], mine])
        for slots, keep, mine in zip(inputs.pages, kept, own, strict=True)
    ]
    offsets = [len(slots) - keep for slots, keep in zip(inputs.pages, kept, strict=True)]
    return _scores(spec, inputs, placing) | {
        "q": placing.padded(inputs.query),
        "o": out.rows,
        "k_buffer": placing.tensor(keys),
        "v_buffer": placing.tensor(values),
        "qo_indptr": placing.integers(starts(inputs.new), torch.int64),
        "kv_indptr": placing.integers(starts(tuple(len(slots) for slots in pages))),
        "kv_indices": placing.integers(np.concatenate(pages), torch.int64),
        "prefix_lens": placing.integers(kept),
        "max_len_extend": max(inputs.new),
        "is_causal": spec.causal,
        "sliding_window_size": spec.window if spec.window is not None else -1,
        "window_start_pos": placing.integers(offsets) if spec.window is not None else None,
    }


def _prefill_arguments(spec: Prefill, inputs: AttentionInputs, placing: Placing, out: Output) -> dict[str, Any]:
    return {
        "q": placing.padded(inputs.query),
        "k": placing.padded(inputs.new_keys),
        "v": placing.padded(inputs.new_values),
        "o": out.rows,
        "b_start_loc": placing.integers(starts(spec.lengths)[:-1]),
        "b_seq_len": placing.integers(spec.lengths),
        "max_input_len": max(spec.lengths),
        "is_causal": spec.causal,
        "sm_scale": inputs.scale,
    }
