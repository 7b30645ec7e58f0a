"""SGLang's LoRA kernels, called through its LoRA backends, which make the segments of a batch as in an engine."""

import sys
from dataclasses import dataclass

import numpy as np
import torch

from kit.faults.kernels import changed_kernels, changed_module
from kit.lora_kernel_spec import LoraKernel
from kit.oracles.metrics import Values
from kit.subjects.kernels.launches import recorded_launches
from kit.subjects.kernels.library import Answer, Poison
from kit.subjects.kernels.lora_batch import backend_class, prepared
from kit.subjects.kernels.tensors import Placing, float64
from kit.subjects.workspace import Workspace
from kit.synthetic.lora_kernels import LoraInputs

_ROOT = "sglang.kernels.ops.gemm"
_BACKENDS = tuple(f"sglang.srt.lora.backend.{name}_backend" for name in ("triton", "chunked"))
_KERNELS = ("sgemm_lora", "qkv_lora", "gate_up_lora", "embedding_lora", "chunked_")


@dataclass(frozen=True)
class LoraKernels:
    """One backend of SGLang: ``triton`` or ``csgmv``. `device` is ``cuda``, or ``cpu`` (interpreted)."""

    backend: str
    device: str
    facts: dict[str, str]

    def run(self, spec: LoraKernel, inputs: LoraInputs, poison: Poison) -> Answer:
        """One call. Beyond an adapter's own rank the weights and x hold poison."""
        placing = Placing(self.device, spec.dtype, poison)
        served = prepared(self.backend, self.device, spec, spec.scalings, of_experts=False)
        x = placing.integers(inputs.x, torch.int64) if spec.op == "embedding" else placing.tensor(inputs.x)
        a, b = placing.tensor(inputs.a), placing.tensor(inputs.b)
        base = placing.tensor(inputs.base)
        slices = placing.integers(np.cumsum((0, *spec.outputs)))
        with recorded_launches() as launched:
            match spec.op:
                case "shrink":
                    out = served.run_lora_a_sgemm(x, a, stack_num=len(spec.outputs))
                case "expand":
                    out = served.run_lora_b_sgemm(x, b, output_offset=slices, base_output=base)
                case "qkv":
                    out = served.run_qkv_lora(
                        x, a, b, output_offset=slices, max_qkv_out_dim=max(spec.outputs), base_output=base
                    )
                case "gate-up":
                    out = served.run_gate_up_lora(x, a, b, output_offset=slices, base_output=base)
                case "embedding":
                    out = served.run_lora_a_embedding(x, a, vocab_size=spec.inputs)
            if self.device == "cuda":
                torch.cuda.synchronize()
        foreign = tuple(name for name in launched if not any(part in name for part in _KERNELS))
        return Answer(float64(out), 0, tuple(launched), foreign if launched else ("nothing was launched",))

    def plain(self, spec: LoraKernel, inputs: LoraInputs) -> Values:
        """The peer: two matrix products and a sum in plain torch, each rounded to the dtype."""
        placing = Placing(self.device, spec.dtype, "nan")
        slices, ends = len(spec.outputs), np.cumsum((0, *spec.outputs))
        short = spec.op in ("shrink", "embedding")
        a, b, base = placing.tensor(inputs.a), placing.tensor(inputs.b), placing.tensor(inputs.base)
        x = placing.integers(inputs.x, torch.int64) if spec.op == "embedding" else placing.tensor(inputs.x)
        out = (
            torch.zeros(len(x), slices * spec.max_rank, dtype=base.dtype, device=self.device) if short else base.clone()
        )
        for adapter, rank in enumerate(spec.ranks):
            rows = torch.from_numpy(np.flatnonzero(inputs.owner == adapter)).to(self.device)
            if rank == 0 or not len(rows):
                continue
            low = _plain_low(spec, a[adapter, : slices * rank], x[rows])
            if short:
                out[rows, : slices * rank] = low
                continue
            for place in range(slices):
                up = b[adapter, ends[place] : ends[place + 1], :rank]
                delta = (low[:, place * rank : (place + 1) * rank] @ up.T) * spec.scalings[adapter]
                out[rows, ends[place] : ends[place + 1]] += delta
        return float64(out)


def _plain_low(spec: LoraKernel, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    if spec.op == "embedding":
        return a[:, x].T
    return x[:, : len(a)] if spec.op == "expand" else x @ a.T


def open_lora(backend: str, device: str, workspace: Workspace) -> LoraKernels:
    """The LoRA kernels of the installed SGLang, by the name of their backend, with the faults of a self-test in them.

    Raises:
        UsageFault: the installed kernels give no place for a fault.
    """
    for module in _BACKENDS:  # they hold the functions of the kernels
        sys.modules.pop(module, None)
    for name in sorted(changed_kernels()):
        changed_module(f"{_ROOT}.{name}", workspace.faults, workspace.scratch)
    kind = backend_class(backend)
    if device == "cpu":
        _name_the_device()
    return LoraKernels(backend, device, {"kernels": f"{kind.__module__}.{kind.__name__}"})


def _name_the_device() -> None:
    """csgmv looks for a table of tuned sizes by the device's name, and a processor has none there."""
    from sglang.kernels.ops.gemm import lora_tuning_config

    lora_tuning_config.get_device_name = lambda: "cpu"
