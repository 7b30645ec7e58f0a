"""SGLang's LoRA on a mixture of experts, called through the hooks that its runners of experts call (``lora_moe_runners.py``)."""

import importlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch

from kit.lora_kernel_spec import ExpertLora
from kit.oracles.metrics import Values
from kit.subjects.kernels.launches import recorded_launches
from kit.subjects.kernels.library import Answer, Poison
from kit.subjects.kernels.lora_batch import prepared
from kit.subjects.kernels.tensors import Placing, float64
from kit.synthetic.expert_lora import ExpertLoraInputs

_RUNNERS = "sglang.srt.lora.lora_moe_runners"
_OPERATOR = "sglang.kernels.ops.moe.fused_moe_lora_kernel"
_NAME = "fused_moe_lora"
_KERNELS = ("moe_lora", "virtual_topk_ids", "sanitize_expert_ids", "fused_moe_kernel")


@dataclass(frozen=True)
class ExpertLoraKernels:
    """The hooks of SGLang, on a batch that `backend` (``triton`` or ``csgmv``) prepared. `device` is ``cuda`` or ``cpu``."""

    backend: str
    device: str

    def run(self, spec: ExpertLora, inputs: ExpertLoraInputs, poison: Poison) -> Answer:
        """One call. Weights for which an adapter has no token, and rows behind the batch, hold poison."""
        placing = Placing(self.device, spec.dtype, poison)
        runners = importlib.import_module(_RUNNERS)
        if self.device == "cpu":  # the operator is registered for GPUs alone; this is the function behind it
            module = importlib.import_module(_OPERATOR)
            setattr(module, _NAME, getattr(module, f"_{_NAME}"))
        info = self._info(runners, spec, inputs, placing)
        x, visits = placing.padded(inputs.x), placing.integers(inputs.visits)
        shares = torch.from_numpy(inputs.shares).to(self.device)
        out = placing.output(*inputs.base.shape)
        out.rows.copy_(placing.tensor(inputs.base))
        with _engine_settings(), recorded_launches() as launched:
            hooks = runners.build_lora_hooks(x, info, visits)
            hook = hooks.after_gate_up if spec.place == "gate-up" else hooks.after_down
            if hook is not None:  # SGLang asks for nothing where no row has an adapter
                hook(x, out.rows, shares, visits)
            if self.device == "cuda":
                torch.cuda.synchronize()
        foreign = [name for name in launched if not any(part in name for part in _KERNELS)]
        if info.has_active_lora and not launched:
            foreign.append("nothing was launched")
        repeatable = spec.routing == "by-adapter"  # the other way splits sums and adds their parts atomically
        return Answer(out.values(), out.overwritten(), tuple(launched), tuple(foreign), repeatable)

    def plain(self, spec: ExpertLora, inputs: ExpertLoraInputs) -> Values:
        """The peer: for every adapter and expert two matrix products, a factor and a sum in plain torch, each rounded to the dtype."""
        placing = Placing(self.device, spec.dtype, "nan")
        x, out = placing.tensor(inputs.x), placing.tensor(inputs.base)
        shares = placing.tensor(inputs.shares)
        for adapter, expert in product(range(len(spec.ranks)), range(spec.visited)):
            rank = spec.ranks[adapter]
            rows, places = np.nonzero((inputs.visits == expert) & (inputs.owner == adapter)[:, None])
            if rank == 0 or not len(rows):
                continue
            row, place = placing.integers(rows, torch.int64), placing.integers(places, torch.int64)
            down = placing.tensor(inputs.down(adapter, expert)).view(spec.slices, spec.max_rank, spec.inputs)
            up = placing.tensor(inputs.up(adapter, expert)).view(spec.slices, spec.outputs, spec.max_rank)
            at = row * spec.chosen + place if spec.place == "down" else row
            parts = [(x[at] @ down[i, :rank].T) @ up[i, :, :rank].T for i in range(spec.slices)]
            delta = torch.cat(parts, dim=-1)
            out[row, place] += delta * shares[row, place][:, None] if spec.place == "down" else delta
        return float64(out)

    def _info(self, runners: Any, spec: ExpertLora, inputs: ExpertLoraInputs, placing: Placing) -> Any:
        """As ``FusedMoEWithLoRA._get_lora_info`` makes it. A hook reads the weights of its own projection only."""
        batch = prepared(self.backend, self.device, spec, (1.0,) * len(spec.ranks), of_experts=True).batch_info
        a, b = placing.tensor(inputs.a), placing.tensor(inputs.b)
        gate_up = spec.place == "gate-up"
        return runners.LoRAInfo(
            gate_up_lora_a_weights=a if gate_up else None,
            gate_up_lora_b_weights=b if gate_up else None,
            down_lora_a_weights=None if gate_up else a,
            down_lora_b_weights=None if gate_up else b,
            seg_indptr=batch.moe_lora_info.seg_indptr,
            req_to_lora=batch.moe_lora_info.req_to_lora,
            lora_ranks=batch.lora_ranks,
            adapter_enabled=batch.moe_lora_info.adapter_enabled,
            token_lora_mapping=batch.moe_lora_info.token_lora_mapping,
            max_lora_rank=spec.max_rank,
            num_experts=spec.experts,
            has_active_lora=any(spec.ranks[adapter] for adapter in spec.adapters),
            experts_shared_outer_loras=spec.shared_outer,
            lora_use_virtual_experts=spec.routing == "virtual-experts",
        )


def _engine_settings() -> AbstractContextManager[Any]:
    """SGLang's default settings in place, as in an engine: without them virtual experts get block sizes that no engine gets."""
    context: Any = importlib.import_module("sglang.srt.runtime_context").get_context()
    settings: AbstractContextManager[Any] = context.override_server_args()
    return settings
