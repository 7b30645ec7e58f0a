"""SGLang's Wave attention as a library under test: its own launchers on CPU tensors, its kernels followed in MLIR.

Called as ``wave_backend.py`` calls them; page size 1 is all that it knows.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sglang.srt.layers.attention.wave_ops import decode_attention, extend_attention, prefill_attention

from kit.attention_spec import AttentionSpec, Cached, Extend, GroupedDecode, Prefill
from kit.faults.wave import changed_mlir, refuse_idle
from kit.offline.mlir.kernel import Kernel
from kit.offline.wave import Emitted, EmittedKernel
from kit.plan import InjectedFault
from kit.subjects.kernels.library import Answer, Poison
from kit.subjects.kernels.tensors import Output, Placing, starts
from kit.synthetic.attention import AttentionInputs, new_lengths

_KERNELS = {
    GroupedDecode: ("phase_0", "phase_1"),
    Extend: ("extend_attention",),
    Prefill: ("prefill_attention",),
}
"""Names of the kernels that SGLang launches for a call."""


@dataclass
class WaveLaunchers:
    """SGLang's launchers, while Wave's compiler is diverted (`kit.offline.wave.diverted`).

    Attributes:
        emitted: the kernels so far. execute: whether launches are followed, or do nothing.
        counts: of all executions (`kit.offline.mlir.machine.Machine`).
        faults: deliberate ones, put into the MLIR that is followed.
    """

    emitted: Emitted
    execute: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    faults: tuple[InjectedFault, ...] = ()
    facts: dict[str, str] = field(default_factory=lambda: {"kernels": decode_attention.__package__ or ""})
    _asked: AttentionSpec | None = None
    _modules: dict[str, Kernel] = field(default_factory=dict)

    def refuses(self, spec: AttentionSpec) -> str | None:
        """What SGLang's Wave launchers have no argument for."""
        paged = isinstance(spec, Cached) and spec.page_size > 1
        if spec.dtype != "float16":
            return "Wave's attention is written for float16"
        if paged or spec.sinks or spec.window is not None or spec.temperature_length is not None:
            return "SGLang's Wave launchers know neither pages of several slots, nor sinks, windows or temperatures"
        if isinstance(spec, Extend) and (spec.unified or spec.tree_mask or not spec.causal):
            return "Wave's extend attention is causal, in two passes, and without a tree"
        if isinstance(spec, Prefill) and spec.causal:
            return "SGLang's Wave launcher does not hand causality on to the prefill kernel"
        if not isinstance(spec, GroupedDecode) and spec.head_dim != spec.value_dim:
            return "Wave's extend and prefill attention have one head size"
        return None

    def attend(self, spec: AttentionSpec, inputs: AttentionInputs, poison: Poison) -> Answer:
        """One call of the launcher, as an engine makes it.

        Raises:
            UsageFault: a fault that is about this call finds no place to act.
        """
        placing = Placing("cpu", spec.dtype, poison)
        out = placing.output(sum(new_lengths(spec)), spec.query_heads, spec.value_dim)
        launched: list[str] = []

        def follow(kernel: EmittedKernel, tensors: list[Any], scalars: list[int]) -> None:
            launched.append(kernel.name)
            if self.execute:
                text = changed_mlir(kernel.name, kernel.mlir, self.faults)
                module = self._modules.setdefault(text, Kernel(text))
                self.counts.update(module.run([tensor.numpy() for tensor in tensors], scalars))

        if spec != self._asked:
            self.emitted.forget()
        self._asked = spec
        self.emitted.call = follow
        match spec:
            case GroupedDecode():
                _decode(spec, inputs, placing, out)
            case Extend():
                _extend(spec, inputs, placing, out)
            case Prefill():
                _prefill(spec, inputs, placing, out)
        if self.execute:
            refuse_idle(self.faults, _KERNELS[type(spec)], launched)
        foreign = () if launched else ("nothing was launched",)
        return Answer(out.values(), out.overwritten(), tuple(dict.fromkeys(launched)), foreign)


def _decode(spec: GroupedDecode, inputs: AttentionInputs, placing: Placing, out: Output) -> None:
    batch = len(spec.lengths)
    logits, maxima = decode_attention.decode_attention_intermediate_arrays_shapes(
        batch, spec.value_dim, spec.query_heads, spec.max_kv_splits
    )
    decode_attention.decode_attention_fwd(
        placing.padded(inputs.query),
        placing.tensor(inputs.cache_keys),
        placing.tensor(inputs.cache_values),
        out.rows,
        placing.integers(starts(spec.lengths)),
        placing.integers(np.concatenate(inputs.pages)),
        placing.workspace(*logits),
        placing.workspace(*maxima),
        placing.integers(np.resize(np.array(spec.num_kv_splits), batch)),
        spec.max_kv_splits,
        inputs.scale,
        spec.logit_cap,
    )


def _extend(spec: Extend, inputs: AttentionInputs, placing: Placing, out: Output) -> None:
    extend_attention.extend_attention_wave(
        placing.padded(inputs.query),
        placing.padded(inputs.new_keys),
        placing.padded(inputs.new_values),
        placing.tensor(inputs.cache_keys),
        placing.tensor(inputs.cache_values),
        placing.integers(starts(inputs.new)),
        placing.integers(starts(spec.prefixes)),
        placing.integers(np.concatenate(inputs.pages)),
        None,
        None,
        max(inputs.new),
        out.rows,
        is_causal=True,
        layer_scaling=inputs.scale,
        logit_cap=spec.logit_cap,
    )


def _prefill(spec: Prefill, inputs: AttentionInputs, placing: Placing, out: Output) -> None:
    prefill_attention.prefill_attention_wave(
        placing.padded(inputs.query),
        placing.padded(inputs.new_keys),
        placing.padded(inputs.new_values),
        out.rows,
        placing.integers(starts(spec.lengths)[:-1]),
        placing.integers(spec.lengths),
        max(spec.lengths),
        is_causal=spec.causal,
    )
