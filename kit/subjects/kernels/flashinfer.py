"""FlashInfer, called as SGLang's ``flashinfer_backend.py`` calls it: slots as pages of one token, new tokens packed beside the cache.

FlashInfer compiles a module for every dtype, head size, kind of kernel and choice of a window when it is first planned.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode, Prefill
from kit.subjects.kernels.launches import recorded_launches
from kit.subjects.kernels.library import Answer, Poison
from kit.subjects.kernels.tensors import Placing, float64, give_back, moved, no_room, starts
from kit.synthetic.attention import AttentionInputs, Slots

BACKEND = "sglang.srt.layers.attention.flashinfer_backend"
WORKSPACE_BYTES = 384 << 20
"""SGLang's default ``SGLANG_FLASHINFER_WORKSPACE_SIZE``."""
TENSOR_CORES_FROM = 4
"""Query heads of a KV head from which SGLang decodes on tensor cores (``should_use_tensor_core``)."""
_MERGE = "merge_state"
"""SGLang's own kernel, which merges the two parts of an extend where FlashInfer's has too few threads."""


@dataclass(frozen=True)
class FlashInfer:
    """The wrappers of the installed FlashInfer.

    Attributes:
        wrappers: the module ``flashinfer``. merge: SGLang's function that merges two answers by their weights.
        ragged: backend of packed prompts, which is SGLang's choice by architecture.
    """

    wrappers: Any
    merge: Callable[..., Any]
    ragged: str
    facts: dict[str, str]
    device: str = "cuda"

    def refuses(self, spec: AttentionSpec) -> str | None:
        """Nothing beyond what the planner already leaves out, but a cache that does not fit."""
        return no_room(spec, self.device)

    def attend(self, spec: AttentionSpec, inputs: AttentionInputs, poison: Poison) -> Answer:
        """One call. It gives a tensor of its own, so no output can be filled with poison before it."""
        placing, inputs = Placing.of(spec, self.device, poison), moved(spec, inputs)
        call = _Call(self, spec, inputs, placing)
        with recorded_launches() as launched:
            match spec:
                case GroupedDecode():
                    out = call.decode()
                case Prefill():
                    out = call.packed()
                case Extend() if spec.window is not None or spec.tree_mask:
                    out = call.paged()
                case Extend() if not any(spec.prefixes):
                    out = call.packed()
                case Extend():
                    out = call.packed_and_cached()
            if self.device == "cuda":
                torch.cuda.synchronize()
        foreign = tuple(name for name in launched if _MERGE not in name)
        values, used = float64(out), call.used
        del call
        give_back(spec, self.device)
        return Answer(values, 0, (*used, *launched), foreign)


class _Call:
    """The arguments of one call, by the names that FlashInfer has for them."""

    def __init__(self, library: FlashInfer, spec: AttentionSpec, inputs: AttentionInputs, placing: Placing) -> None:
        self._library, self._spec, self._inputs, self._placing = library, spec, inputs, placing
        self._dtype = getattr(torch, spec.dtype)
        self.used: list[str] = []

    def decode(self) -> Any:
        """A window is a shorter list of slots, as in ``update_sliding_window``."""
        spec = self._spec
        kept = 0 if spec.window is None else spec.window + 1
        pages = [slots[-kept:] for slots in self._inputs.pages]
        wrapper = self._wrapper(
            "BatchDecodeWithPagedKVCacheWrapper",
            backend="fa2",
            use_tensor_cores=spec.query_heads // spec.kv_heads >= TENSOR_CORES_FROM,
        )
        wrapper.begin_forward(
            *self._slots(pages), *self._heads(), 1, data_type=self._dtype, q_data_type=self._dtype, non_blocking=True
        )
        return wrapper.forward(self._placing.padded(self._inputs.query), self._cache(), **self._scores())

    def packed(self) -> Any:
        """New tokens over each other, without a cache."""
        return self._ragged().forward(*self._new(), causal=self._causal(), **self._scores())

    def packed_and_cached(self) -> Any:
        """New tokens over each other, and over the cache; then both answers are merged."""
        own = self._ragged().forward_return_lse(*self._new(), causal=self._causal(), **self._scores())
        wrapper = self._paged(self._inputs.pages)
        query = self._placing.padded(self._inputs.query)
        cached = wrapper.forward_return_lse(query, self._cache(), causal=False, **self._scores())
        return self._library.merge(*own, *cached)[0]

    def paged(self) -> Any:
        """New tokens are in the cache already, behind everything else: with a window, and with a mask of its own."""
        spec, inputs = self._spec, self._inputs
        assert isinstance(spec, Extend)
        first = self._placing.first_slot + len(inputs.cache_keys)
        own = np.split(np.arange(first, first + len(inputs.new_keys)), starts(inputs.new)[1:-1])
        pages = [np.concatenate([slots, mine]) for slots, mine in zip(inputs.pages, own, strict=True)]
        further: dict[str, Any] = {}
        if spec.tree_mask:
            flat = np.concatenate([mask.ravel() for mask in inputs.visible])
            further["custom_mask"] = torch.from_numpy(flat).to(self._placing.device)
        elif spec.window is not None:
            further["window_left"] = spec.window
        wrapper = self._paged(pages, **further)
        window = further.get("window_left", -1)
        query = self._placing.padded(inputs.query)
        return wrapper.forward(query, self._cache(), causal=self._causal(), window_left=window, **self._scores())

    def _wrapper(self, name: str, **settings: Any) -> Any:
        workspace = self._placing.workspace(WORKSPACE_BYTES // 4).view(torch.uint8)
        wrapper = getattr(self._library.wrappers, name)(workspace, "NHD", **settings)
        self.used.append(f"flashinfer.{name}({', '.join(f'{k}={v}' for k, v in settings.items())})")
        return wrapper

    def _ragged(self) -> Any:
        wrapper = self._wrapper("BatchPrefillWithRaggedKVCacheWrapper", backend=self._library.ragged)
        ends = self._placing.integers(starts(self._inputs.new))
        wrapper.begin_forward(ends, ends, *self._heads(), q_data_type=self._dtype)
        return wrapper

    def _paged(self, pages: Iterable[Slots], **further: Any) -> Any:
        wrapper = self._wrapper("BatchPrefillWithPagedKVCacheWrapper", backend="fa2")
        ends = self._placing.integers(starts(self._inputs.new))
        types = {"q_data_type": self._dtype, "kv_data_type": self._dtype, "non_blocking": True}
        wrapper.begin_forward(ends, *self._slots(pages), *self._heads(), 1, **types, **further)
        return wrapper

    def _slots(self, pages: Iterable[Slots]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Where the slots of each request begin, the slots, and how full its last page of one token is."""
        lists = list(pages)
        ends = starts(tuple(len(slots) for slots in lists))
        slots = self._placing.integers(np.concatenate(lists))
        return self._placing.integers(ends), slots, self._placing.integers([1] * len(lists))

    def _heads(self) -> tuple[int, int, int]:
        return self._spec.query_heads, self._spec.kv_heads, self._spec.head_dim

    def _new(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        inputs = self._inputs
        query, keys, values = (self._placing.padded(a) for a in (inputs.query, inputs.new_keys, inputs.new_values))
        return query, keys, values

    def _cache(self) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = self._inputs
        keys, values = inputs.cache_keys, inputs.cache_values
        if not isinstance(self._spec, GroupedDecode):
            keys = np.concatenate([keys, inputs.new_keys])
            values = np.concatenate([values, inputs.new_values])
        return self._placing.cache(keys), self._placing.cache(values)

    def _causal(self) -> bool:
        return not isinstance(self._spec, GroupedDecode) and self._spec.causal

    def _scores(self) -> dict[str, float]:
        """SGLang names the cap here, when the kernel runs, and not when it is planned."""
        return {"sm_scale": self._inputs.scale, "logits_soft_cap": self._spec.logit_cap}


def module_of(spec: AttentionSpec) -> tuple[object, ...]:
    """What FlashInfer compiles one module for."""
    grouped = isinstance(spec, GroupedDecode) and spec.query_heads // spec.kv_heads < TENSOR_CORES_FROM
    kind = "decode" if grouped else "prefill" if isinstance(spec, Prefill) else "paged"
    windowed = isinstance(spec, Extend) and spec.window is not None and not spec.tree_mask
    return kind, spec.dtype, spec.head_dim, windowed
