"""FlashAttention 3 and 4, called as SGLang's ``flashattention_backend.py`` calls them: everything in a paged cache, or packed prompts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode, Prefill
from kit.subjects.kernels.launches import recorded_launches
from kit.subjects.kernels.library import Answer, Poison
from kit.subjects.kernels.tensors import Placing, float64, give_back, moved, no_room, starts
from kit.synthetic.attention import AttentionInputs, Slots

MODULE = "sglang.kernels.ops.attention.flash_attention"


@dataclass(frozen=True)
class FlashAttention:
    """``flash_attn_with_kvcache`` and ``flash_attn_varlen_func`` of SGLang, version 3 or 4."""

    functions: Any
    version: int
    facts: dict[str, str]
    device: str = "cuda"

    def refuses(self, spec: AttentionSpec) -> str | None:
        """Nothing beyond what the planner already leaves out, but a cache that does not fit."""
        return no_room(spec, self.device)

    def attend(self, spec: AttentionSpec, inputs: AttentionInputs, poison: Poison) -> Answer:
        """One call. It gives a tensor of its own, so no output can be filled with poison before it."""
        placing, inputs = Placing.of(spec, self.device, poison), moved(spec, inputs)
        with recorded_launches() as launched:
            out = (
                self._packed(spec, inputs, placing) if isinstance(spec, Prefill) else self._paged(spec, inputs, placing)
            )
            torch.cuda.synchronize()
        values = float64(out)
        give_back(spec, self.device)
        name = f"flash-attention-{self.version}"
        return Answer(values, 0, (name, *launched), tuple(launched))

    def _paged(self, spec: GroupedDecode | Extend, inputs: AttentionInputs, placing: Placing) -> Any:
        keys = np.concatenate([inputs.cache_keys, inputs.new_keys])
        values = np.concatenate([inputs.cache_values, inputs.new_values])
        pages = inputs.pages if isinstance(spec, GroupedDecode) else _with_new(inputs, placing.first_slot)
        size = spec.page_size
        lengths = [len(slots) for slots in pages]
        table = np.zeros((len(pages), -(-max(lengths) // size)), np.int64)
        for row, slots in enumerate(pages):
            table[row, : -(-len(slots) // size)] = slots[::size] // size
        sinks = {} if inputs.sinks is None else {"sinks": placing.tensor(inputs.sinks)}
        return self.functions.flash_attn_with_kvcache(
            q=placing.padded(inputs.query),
            k_cache=placing.cache(keys).unflatten(0, (-1, size)),
            v_cache=placing.cache(values).unflatten(0, (-1, size)),
            page_table=placing.integers(table),
            cache_seqlens=placing.integers(lengths),
            cu_seqlens_q=placing.integers(starts(inputs.new)),
            cu_seqlens_k_new=placing.integers(starts(tuple(lengths))),
            max_seqlen_q=max(inputs.new),
            softmax_scale=inputs.scale,
            causal=isinstance(spec, GroupedDecode) or spec.causal,
            window_size=(-1, -1) if spec.window is None else (spec.window, 0),
            softcap=spec.logit_cap,
            ver=self.version,
            **sinks,
        )

    def _packed(self, spec: Prefill, inputs: AttentionInputs, placing: Placing) -> Any:
        ends = placing.integers(starts(spec.lengths))
        return self.functions.flash_attn_varlen_func(
            placing.padded(inputs.query),
            placing.padded(inputs.new_keys),
            placing.padded(inputs.new_values),
            cu_seqlens_q=ends,
            cu_seqlens_k=ends,
            max_seqlen_q=max(spec.lengths),
            max_seqlen_k=max(spec.lengths),
            softmax_scale=inputs.scale,
            causal=spec.causal,
            ver=self.version,
        )


def _with_new(inputs: AttentionInputs, first_slot: int) -> list[Slots]:
    """Slots of prefix and new tokens; these lie behind the cache."""
    first = first_slot + len(inputs.cache_keys)
    own = np.split(np.arange(first, first + len(inputs.new_keys)), starts(inputs.new)[1:-1])
    return [np.concatenate([slots, mine]) for slots, mine in zip(inputs.pages, own, strict=True)]
