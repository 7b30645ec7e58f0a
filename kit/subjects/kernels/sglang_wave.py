"""SGLang's Wave attention kernels (ROCm), called as SGLang's ``wave_backend.py`` calls them."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode, Prefill
from kit.subjects.kernels.launches import recorded_launches
from kit.subjects.kernels.library import Answer, Poison
from kit.subjects.kernels.tensors import Output, Placing, give_back, moved, no_room, starts
from kit.synthetic.attention import AttentionInputs, new_lengths

ROOT = "sglang.srt.layers.attention.wave_ops"


@dataclass(frozen=True)
class SGLangWave:
    """The kernels of the installed SGLang and wave-lang. Attributes: decode, extend, prefill: the modules of `ROOT`."""

    decode: ModuleType
    extend: ModuleType
    prefill: ModuleType
    facts: dict[str, str]

    def refuses(self, spec: AttentionSpec) -> str | None:
        """Nothing beyond what the planner already leaves out, but a cache that does not fit."""
        return no_room(spec, "cuda")

    def attend(self, spec: AttentionSpec, inputs: AttentionInputs, poison: Poison) -> Answer:
        """One call. A Triton kernel that runs in it is a fallback: Wave launches its own code objects."""
        placing, inputs = Placing.of(spec, "cuda", poison), moved(spec, inputs)
        out = placing.output(sum(new_lengths(spec)), spec.query_heads, spec.value_dim)
        with recorded_launches() as launched, _WaveCalls() as compiled:
            match spec:
                case GroupedDecode():
                    self._decode(spec, inputs, placing, out)
                case Extend():
                    self._extend(spec, inputs, placing, out)
                case Prefill():
                    self._prefill(spec, inputs, placing, out)
            torch.cuda.synchronize()
        give_back(spec, "cuda")
        foreign = tuple(launched) if compiled or not launched else (*launched, "no Wave kernel ran")
        return Answer(out.values(), out.overwritten(), (*compiled, *launched), foreign)

    def _decode(self, spec: GroupedDecode, inputs: AttentionInputs, placing: Placing, out: Output) -> None:
        shapes = self.decode.decode_attention_intermediate_arrays_shapes(
            len(spec.lengths), spec.value_dim, spec.query_heads, spec.max_kv_splits
        )
        logits, largest = (placing.workspace(*shape) for shape in shapes)
        self.decode.decode_attention_fwd(
            placing.padded(inputs.query),
            placing.cache(inputs.cache_keys),
            placing.cache(inputs.cache_values),
            out.rows,
            placing.integers(starts(spec.lengths)),
            placing.integers(np.concatenate(inputs.pages)),
            logits,
            largest,
            placing.integers(np.resize(np.array(spec.num_kv_splits), len(spec.lengths))),
            spec.max_kv_splits,
            inputs.scale,
            spec.logit_cap,
        )

    def _extend(self, spec: Extend, inputs: AttentionInputs, placing: Placing, out: Output) -> None:
        self.extend.extend_attention_wave(
            placing.padded(inputs.query),
            placing.padded(inputs.new_keys),
            placing.padded(inputs.new_values),
            placing.cache(inputs.cache_keys),
            placing.cache(inputs.cache_values),
            placing.integers(starts(inputs.new)),
            placing.integers(starts(spec.prefixes)),
            placing.integers(np.concatenate(inputs.pages)),
            None,
            None,
            placing.integers([max(inputs.new)])[0],
            out.rows,
            is_causal=spec.causal,
            layer_scaling=inputs.scale,
            logit_cap=spec.logit_cap,
        )

    def _prefill(self, spec: Prefill, inputs: AttentionInputs, placing: Placing, out: Output) -> None:
        self.prefill.prefill_attention_wave(
            placing.tensor(inputs.query),
            placing.tensor(inputs.new_keys),
            placing.tensor(inputs.new_values),
            out.rows,
            placing.integers(starts(spec.lengths)[:-1]),
            placing.integers(spec.lengths),
            max(spec.lengths),
            is_causal=spec.causal,
        )


class _WaveCalls:
    """Names of the Wave kernels that are called within, by way of the object that ``wave_compile`` gives."""

    def __enter__(self) -> list[str]:
        from wave_lang.kernel.wave.compile import WaveKernel

        self._kind, self._call = WaveKernel, WaveKernel.__call__
        called: list[str] = []
        honest = self._call

        def recording(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            called.append(f"wave.{kernel.options.kernel_launch_info.func_name}")
            return honest(kernel, *args, **kwargs)

        WaveKernel.__call__ = recording
        return called

    def __exit__(self, *_: object) -> None:
        self._kind.__call__ = self._call
