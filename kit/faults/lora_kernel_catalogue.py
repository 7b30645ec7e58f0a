"""Which faults of LoRA kernels can be injected, and which cases must see them. Data only; `kit.faults.kernels` acts."""

from collections.abc import Callable
from typing import Final

from kit.faults.kind import FaultKind, Where
from kit.lora_kernel_spec import LoraKernel


def _fault(name: str, where: Where, effect: str, report: str) -> FaultKind:
    return FaultKind(name, effect, where, "kernels", report)


LORA_KERNEL_FAULTS: Final[tuple[FaultKind, ...]] = (
    _fault(
        "lora-scaling-of-first",
        "batching",
        "the second product of every request is scaled as the first adapter's",
        "sgl-project/sglang#28091",
    ),
    _fault(
        "lora-rank-rounded-down",
        "kernel indexing",
        "the second product takes ranks down to a multiple of 16",
        "predibase/lorax#70",
    ),
    _fault(
        "lora-slices-alike",
        "kernel indexing",
        "every slice of a fused projection takes what the first product gave for the first slice",
        "NVIDIA/TensorRT-LLM#8063",
    ),
    _fault(
        "lora-segment-of-before",
        "batching",
        "every segment of a batch takes the adapter of the one before it",
        "vllm-project/vllm#4995",
    ),
    _fault(
        "lora-base-adapted",
        "batching",
        "requests without an adapter get the first one",
        "NVIDIA/TensorRT-LLM#2096",
    ),
    _fault(
        "lora-long-rows-nan",
        "kernel arithmetic",
        "the second product of a long segment is NaN",
        "vllm-project/vllm#48590",
    ),
)
_BLOCK = 16


def _adapters(spec: LoraKernel) -> set[int]:
    """Those of requests that have rows."""
    return {adapter for adapter, rows in zip(spec.adapters, spec.rows, strict=True) if rows}


def _second(spec: LoraKernel) -> bool:
    return spec.op in ("expand", "qkv", "gate-up")


def _scaling(spec: LoraKernel) -> bool:
    others = {spec.scalings[adapter] for adapter in _adapters(spec) if spec.ranks[adapter]}
    return _second(spec) and bool(others - {spec.scalings[0]})


def _rank(spec: LoraKernel) -> bool:
    return _second(spec) and any(spec.ranks[adapter] % _BLOCK for adapter in _adapters(spec))


def _slices(spec: LoraKernel) -> bool:
    return spec.op in ("qkv", "gate-up") and any(spec.ranks[adapter] for adapter in _adapters(spec))


def _segments(spec: LoraKernel) -> bool:
    return spec.op != "embedding" and len(_adapters(spec)) > 2


def _base(spec: LoraKernel) -> bool:
    """What the first product gives for a request without an adapter, nobody reads."""
    return _second(spec) and spec.ranks[0] > 0 and any(not spec.ranks[adapter] for adapter in _adapters(spec))


def _long(spec: LoraKernel) -> bool:
    longest = max((n for n, a in zip(spec.rows, spec.adapters, strict=True) if spec.ranks[a]), default=0)
    return _second(spec) and longest >= _BLOCK


_SEEN: Final[dict[str, Callable[[LoraKernel], bool]]] = {
    "lora-scaling-of-first": _scaling,
    "lora-rank-rounded-down": _rank,
    "lora-slices-alike": _slices,
    "lora-segment-of-before": _segments,
    "lora-base-adapted": _base,
    "lora-long-rows-nan": _long,
}


def lora_kernel_must_see(fault: str, spec: LoraKernel) -> bool:
    """Whether a case must be red under a fault: it is about these kernels, and the batch cannot hide it."""
    return fault in _SEEN and _SEEN[fault](spec)
