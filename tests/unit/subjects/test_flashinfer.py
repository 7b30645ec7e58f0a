"""FlashInfer is given what its documentation asks for: wrappers that follow its definitions in float64 get the answer of the oracle.

Signatures are those of FlashInfer 0.6.15 (``flashinfer/decode.py`` and ``prefill.py``); a name that it does not have raises TypeError.
"""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode, Prefill
from kit.checks import attention
from kit.subjects.kernels import flashinfer
from kit.subjects.kernels.flashinfer import FlashInfer, module_of
from kit.subjects.kernels.subject import KernelSubject

Tensor = torch.Tensor


def attended(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float, cap: float) -> tuple[Tensor, Tensor]:
    """Answer and log2 of the sum of weights, one request; an empty request has the answer 0 and no weight."""
    group = q.shape[1] // k.shape[1]
    keys, values = (t.double().repeat_interleave(group, dim=1) for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), keys) * scale
    if cap > 0:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~seen, -math.inf)
    lse = torch.logsumexp(scores, dim=-1) / math.log(2)
    weights = torch.nan_to_num(torch.softmax(scores, dim=-1))
    return torch.einsum("hqk,khd->qhd", weights, torch.nan_to_num(values)), lse.T


def merged(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> tuple[Tensor, Tensor]:
    """``merge_state``: two answers by their weights, whose logarithms are to the base 2."""
    a, b = (torch.exp2(s - torch.maximum(s_a, s_b))[..., None] for s in (s_a, s_b))
    return (v_a * a + v_b * b) / (a + b), s_a


class Wrapper:
    """What the three wrappers share: the mask of a request, whose last new token sees all of its keys."""

    def __init__(self, workspace: Tensor, layout: str, backend: str = "auto") -> None:
        assert workspace.dtype == torch.uint8 and layout == "NHD" and backend in ("auto", "fa2")
        self.mask: Tensor | None = None
        self.planned_window = -1

    def answer(
        self, q: Tensor, lists: list[tuple[Tensor, Tensor]], causal: bool, scale: float, cap: float, window: int
    ) -> tuple[Tensor, Tensor]:
        out, weights, place = [], [], 0
        for row, (k, v) in enumerate(lists):
            start, end = int(self.qo[row]), int(self.qo[row + 1])
            query = torch.arange(len(k) - (end - start), len(k))[:, None]
            key = torch.arange(len(k))[None, :]
            seen = key <= query if causal else torch.ones(end - start, len(k), dtype=torch.bool)
            if window >= 0:
                assert window == self.planned_window, "the kernel was compiled without a window"
                seen = seen & (query - key <= window)
            if self.mask is not None:
                seen = self.mask[place : place + seen.numel()].view_as(seen)
                place += seen.numel()
            each, lse = attended(q[start:end], k, v, seen, scale, cap)
            out.append(each)
            weights.append(lse)
        return torch.cat(out).to(q.dtype), torch.cat(weights)


class Paged(Wrapper):
    def begin_forward(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        custom_mask: Tensor | None = None,
        window_left: int = -1,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        non_blocking: bool = True,
    ) -> None:
        assert page_size == 1 and bool((paged_kv_last_page_len == 1).all())
        assert paged_kv_indices.dtype == paged_kv_indptr.dtype == qo_indptr.dtype == torch.int32
        assert q_data_type == kv_data_type and num_qo_heads % num_kv_heads == 0 and head_dim_qk in (64, 128)
        self.qo, self.indptr, self.indices = qo_indptr, paged_kv_indptr, paged_kv_indices
        self.mask, self.planned_window = custom_mask, window_left

    def gathered(self, cache: tuple[Tensor, Tensor]) -> list[tuple[Tensor, Tensor]]:
        parts = [self.indices[self.indptr[i] : self.indptr[i + 1]].long() for i in range(len(self.indptr) - 1)]
        return [(cache[0][part], cache[1][part]) for part in parts]

    def forward_return_lse(
        self,
        q: Tensor,
        paged_kv_cache: tuple[Tensor, Tensor],
        causal: bool = False,
        window_left: int = -1,
        logits_soft_cap: float = 0.0,
        sm_scale: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        return self.answer(q, self.gathered(paged_kv_cache), causal, sm_scale, logits_soft_cap, window_left)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.forward_return_lse(*args, **kwargs)[0]


class Decode(Paged):
    def __init__(self, workspace: Tensor, layout: str, backend: str, use_tensor_cores: bool) -> None:
        super().__init__(workspace, layout, backend)
        self.grouped = use_tensor_cores

    def begin_forward(  # type: ignore[override]
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        data_type: Any = None,
        q_data_type: Any = "float16",
        non_blocking: bool = True,
    ) -> None:
        assert self.grouped == (num_qo_heads // num_kv_heads >= 4)
        rows = torch.arange(len(indptr), dtype=torch.int32)
        super().begin_forward(
            rows, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
            q_data_type=q_data_type, kv_data_type=data_type,
        )  # fmt: skip


class Ragged(Wrapper):
    def begin_forward(
        self,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        q_data_type: Any = "float16",
    ) -> None:
        assert head_dim_qk in (64, 128) and num_qo_heads % num_kv_heads == 0
        self.qo, self.kv = qo_indptr, kv_indptr

    def forward_return_lse(
        self, q: Tensor, k: Tensor, v: Tensor, causal: bool = False, logits_soft_cap: float = 0.0, sm_scale: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        parts = [slice(int(self.kv[i]), int(self.kv[i + 1])) for i in range(len(self.kv) - 1)]
        return self.answer(q, [(k[part], v[part]) for part in parts], causal, sm_scale, logits_soft_cap, -1)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.forward_return_lse(*args, **kwargs)[0]


WRAPPERS = SimpleNamespace(
    BatchDecodeWithPagedKVCacheWrapper=Decode,
    BatchPrefillWithPagedKVCacheWrapper=Paged,
    BatchPrefillWithRaggedKVCacheWrapper=Ragged,
)
HEADS = {"query_heads": 8, "kv_heads": 2, "head_dim": 64, "value_dim": 64}
FEW = {"query_heads": 4, "kv_heads": 2, "head_dim": 64, "value_dim": 64}
CASES: dict[str, AttentionSpec] = {
    "decode": GroupedDecode(lengths=(5, 1, 70), logit_cap=3.0, content="large", **HEADS),
    "decode, few heads": GroupedDecode(lengths=(5, 33), pages="descending", page_size=16, **FEW),
    "decode, window": GroupedDecode(lengths=(9, 3), window=4, content="revealing", **HEADS),
    "prefill": Prefill(lengths=(3, 17), **HEADS),
    "prefill, no mask": Prefill(lengths=(3, 17), causal=False, logit_cap=3.0, **FEW),
    "extend": Extend(prefixes=(33, 0, 5), lengths=(4, 3, 1), logit_cap=5.0, content="large", **HEADS),
    "extend, no prefix": Extend(prefixes=(0, 0), lengths=(4, 3), **HEADS),
    "extend, window": Extend(prefixes=(20, 0), lengths=(4, 9), window=3, content="revealing", **HEADS),
    "extend, tree": Extend(prefixes=(5, 2), lengths=(6, 4), tree_mask=True, content="revealing", **FEW),
}


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_right_by_flashinfers_definitions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flashinfer, "WORKSPACE_BYTES", 1024)
    library = FlashInfer(WRAPPERS, merged, "auto", {}, device="cpu")
    found = attention.check(CASES[name], KernelSubject(library, "cpu", {}))
    assert {m.name: m.value for m in found.measurements if not m.within} == {}
    assert any(str(kernel).startswith("flashinfer.Batch") for kernel in found.evidence["kernels"])  # type: ignore[union-attr]


def test_a_window_and_few_heads_are_modules_of_their_own() -> None:
    modules = {name: module_of(spec) for name, spec in CASES.items()}
    assert modules["decode"] != modules["decode, few heads"] and modules["decode"] == modules["decode, window"]
    assert modules["extend"] != modules["extend, window"] and modules["extend"] == modules["extend, tree"]
