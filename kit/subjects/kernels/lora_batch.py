"""A batch as SGLang's LoRA backends prepare it, through their own ``prepare_lora_batch``."""

from types import SimpleNamespace
from typing import Any

import torch

from kit.lora_kernel_spec import LoraBatch

_CHUNK = 128
"""Largest chunk of csgmv, SGLang's default ``max_lora_chunk_size`` rounded to its largest size in use."""


def prepared(name: str, device: str, spec: LoraBatch, scalings: tuple[float, ...], of_experts: bool) -> Any:
    """The backend ``triton`` or ``csgmv`` with this batch; `of_experts` adds what LoRA on experts needs."""
    backend = backend_class(name)(
        max_loras_per_batch=len(spec.ranks),
        device=torch.device(device),
        server_args=SimpleNamespace(max_lora_chunk_size=_CHUNK),
    )
    backend.is_moe_lora = of_experts
    backend.prepare_lora_batch(
        forward_batch=_forward_batch(spec, device),
        weight_indices=list(spec.adapters),
        lora_ranks=list(spec.ranks),
        scalings=list(scalings),
        use_cuda_graph=False,
    )
    return backend


def backend_class(name: str) -> Any:
    """SGLang's class of a backend."""
    if name == "triton":
        from sglang.srt.lora.backend.triton_backend import TritonLoRABackend

        return TritonLoRABackend
    from sglang.srt.lora.backend.chunked_backend import ChunkedSgmvLoRABackend

    return ChunkedSgmvLoRABackend


def _forward_batch(spec: LoraBatch, device: str) -> SimpleNamespace:
    """What backends read of a batch: one request after the other, without logprobs."""
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    return SimpleNamespace(
        forward_mode=ForwardMode.DECODE if spec.decode else ForwardMode.EXTEND,
        batch_size=len(spec.rows),
        extend_seq_lens=torch.tensor(spec.rows, dtype=torch.int32, device=device),
        extend_seq_lens_cpu=list(spec.rows),
        extend_num_tokens=sum(spec.rows),
        extend_logprob_start_lens_cpu=[0] * len(spec.rows),
        return_logprob=False,
    )
