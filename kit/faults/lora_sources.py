"""Faults of LoRA kernels, as texts of their sources, in both of SGLang's backends. Data only; `kit.faults.kernels` acts."""

from typing import Final

from kit.faults.kernel_sources import Change

_EXPAND, _QKV, _GATE_UP, _CHUNKED = "sgemm_lora_b", "qkv_lora_b", "gate_up_lora_b", "chunked_sgmv_expand"
_SECOND = (_EXPAND, _QKV, _GATE_UP)
"""Modules of the backend ``triton`` with the second product, x Bᵀ; `_CHUNKED` is that of ``csgmv``."""
_FIRST = "sgemm_lora_a"
_SHRINK = "chunked_sgmv_shrink"
_WEIGHT = "w_index = tl.load(weight_indices + {})"
_BASE_IS_FIRST = "\n    w_index = tl.where(tl.load(lora_ranks + w_index) == 0, 0, w_index)"


def _in(modules: tuple[str, ...], text: str, instead: str) -> tuple[Change, ...]:
    return tuple(Change(module, text, instead) for module in modules)


LORA: Final[dict[str, tuple[Change, ...]]] = {
    "lora-scaling-of-first": _in((*_SECOND, _CHUNKED), "tl.load(scalings + w_index)", "tl.load(scalings)"),
    "lora-rank-rounded-down": (
        *_in(_SECOND, "K = tl.minimum(K, rank)", "K = tl.minimum(K, rank // 16 * 16)"),
        Change(_CHUNKED, "tl.minimum(MAX_RANK, cur_rank)", "tl.minimum(MAX_RANK, cur_rank // 16 * 16)"),
    ),
    "lora-slices-alike": (
        Change(_QKV, "(qkv_id * K) * x_stride_1", "(0 * K) * x_stride_1"),
        Change(_GATE_UP, "(gate_up_id * K) * x_stride_1", "(0 * K) * x_stride_1"),
        Change(_CHUNKED, "slice_id * cur_rank * x_stride_1", "0 * cur_rank * x_stride_1"),
    ),
    "lora-segment-of-before": (
        *_in((_FIRST, *_SECOND), _WEIGHT.format("batch_id"), _WEIGHT.format("tl.maximum(batch_id - 1, 0)")),
        *_in((_SHRINK, _CHUNKED), _WEIGHT.format("pid_s"), _WEIGHT.format("tl.maximum(pid_s - 1, 0)")),
    ),
    "lora-base-adapted": (
        *_in((_FIRST, *_SECOND), _WEIGHT.format("batch_id"), _WEIGHT.format("batch_id") + _BASE_IS_FIRST),
        *_in((_SHRINK, _CHUNKED), _WEIGHT.format("pid_s"), _WEIGHT.format("pid_s") + _BASE_IS_FIRST),
    ),
    "lora-long-rows-nan": (
        *_in(_SECOND, "partial_sum *= scaling", 'partial_sum *= tl.where(seg_len > 15, float("nan"), scaling)'),
        Change(
            _CHUNKED,
            "partial_sum *= scaling",
            'partial_sum *= tl.where(seg_end - seg_start > 15, float("nan"), scaling)',
        ),
    ),
}
"""By fault, the changes of sources. The texts stand in SGLang 0.5.17 to 0.5.19."""
