"""Faults of attention kernels, as texts of their sources. Data only; `kit.faults.kernels` acts."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Change:
    """A text of a kernel module and what stands in its place; ``{strength}`` becomes the fault's strength."""

    module: str
    text: str
    instead: str


_DECODE, _EXTEND, _PREFILL = "decode_attention", "extend_attention", "prefill_attention"
_SPLIT_END = "split_kv_end = tl.minimum(split_kv_start + kv_len_per_split, cur_batch_seq_len"
_GROUP = "cur_kv_head = cur_head // kv_group_num"
_SECOND_GROUP = "cur_kv_head = tl.where(cur_head == kv_group_num, 0, cur_head // kv_group_num)"
_TILE = "cur_head_id // tl.cdiv(kv_group_num, BLOCK_H)"
_LSE = "Att_Lse + offs_mid_o_1,\n            e_max + tl.log(e_sum),\n"
_CAP = "qk = logit_cap * tanh(qk / logit_cap)"
_MERGED = "acc *= old_scale\n            exp_logic"
_OFFSET_K = "kv_loc[None, :] * stride_buf_kbs"
_BLOCKS = "range(split_kv_start, split_kv_end, BLOCK_N)"
_WHOLE_BLOCKS = "range(split_kv_start, split_kv_start + (split_kv_end - split_kv_start) // BLOCK_N * BLOCK_N, BLOCK_N)"

ATTENTION: Final[dict[str, tuple[Change, ...]]] = {
    "kernel-mask-off-by-one": (
        Change(_DECODE, f"{_SPLIT_END})", f"{_SPLIT_END} - 1)"),
        Change(
            _EXTEND,
            "mask_causual = (cur_block_m * BLOCK_M + offs_m[:, None]) >= (",
            "mask_causual = (cur_block_m * BLOCK_M + offs_m[:, None] + 1) >= (",
        ),
        Change(_EXTEND, "q_idx >= k_idx_in_extend", "q_idx + 1 >= k_idx_in_extend"),
        Change(_PREFILL, "(offs_m[:, None] >= (start_n + offs_n", "(offs_m[:, None] + 1 >= (start_n + offs_n"),
    ),
    "kernel-wrong-group": (
        Change(_DECODE, f"cur_kv_head = {_TILE}", f"cur_kv_head = tl.where(cur_head_id == 1, 0, {_TILE})"),
        Change(_DECODE, _GROUP, _SECOND_GROUP),
        Change(_EXTEND, _GROUP, _SECOND_GROUP),
        Change(_PREFILL, _GROUP, _SECOND_GROUP),
    ),
    "kernel-empty-split": (
        Change(
            _DECODE,
            "if split_kv_end > split_kv_start:\n            tv",
            "if split_kv_id < kv_splits:\n            tv",
        ),
    ),
    "kernel-workspace-unwritten": (
        Change(_DECODE, f"{_LSE}            mask=mask_h,", f"{_LSE}            mask=mask_h & (split_kv_id > 0),"),
        Change(_DECODE, f"{_LSE}        )", f"{_LSE}            mask=split_kv_id > 0,\n        )"),
    ),
    "kernel-cap-dropped": (Change(_DECODE, _CAP, "qk = qk * 1.0"), Change(_EXTEND, _CAP, "qk = qk * 1.0")),
    "kernel-last-block-dropped": (
        Change(_DECODE, _BLOCKS, _WHOLE_BLOCKS),
        Change(_EXTEND, "range(0, prefix_end, BLOCK_N)", "range(0, prefix_end // BLOCK_N * BLOCK_N, BLOCK_N)"),
    ),
    "kernel-one-head-scaled": (
        Change(
            _DECODE,
            "acc / e_sum * v_scale,",
            "acc / e_sum * v_scale * tl.where(cur_head == 37, {strength}, 1.0),",
        ),
    ),
    "kernel-head-dim-cut": (
        Change(_DECODE, "mask_d = offs_d < Lk", "mask_d = offs_d < tl.minimum(Lk, 64)"),
        Change(_EXTEND, "mask_d = offs_d < Lq", "mask_d = offs_d < tl.minimum(Lq, 64)"),
        Change(_PREFILL, "mask_d = offs_d < Lk", "mask_d = offs_d < tl.minimum(Lk, 64)"),
    ),
    "kernel-merge-not-rescaled": (Change(_DECODE, _MERGED, _MERGED.replace("old_scale", "1.0")),),
    "kernel-split-weight-without-sum": (Change(_DECODE, "e_max + tl.log(e_sum),", "e_max,"),),
    "kernel-offsets-32-bits": (
        Change(_DECODE, f"offs_buf_k = {_OFFSET_K}", f"offs_buf_k = ({_OFFSET_K}).to(tl.uint32)"),
        Change(_EXTEND, f"offs_{_OFFSET_K}\n", f"(offs_{_OFFSET_K}).to(tl.uint32)\n"),
    ),
}
"""By fault, the changes of sources. The texts stand in SGLang 0.5.17 to 0.5.19."""
