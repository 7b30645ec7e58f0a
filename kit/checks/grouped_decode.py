"""Grouped decode attention against float64, head by head."""

import math

import numpy as np
from pydantic import JsonValue

from kit.checks.outcome import CheckResult, shown
from kit.evidence import LimitUseByHead, largest_of_each, window_for
from kit.measurement import Measurement
from kit.oracles import attention, canary, limits, metrics
from kit.oracles.metrics import Values
from kit.plan import GroupedDecode
from kit.subjects.triton_attention import TritonAttention
from kit.synthetic.attention import decode_inputs

_UPSTREAM = "test_wave_attention_kernels.py of SGLang"


def check(spec: GroupedDecode, subject: TritonAttention) -> CheckResult:
    """One call of the kernel: shuffled page table, NaN in unused slots, in the output and in both workspaces."""
    canary.check_attention()
    inputs = decode_inputs(spec)
    oracle = attention.grouped_decode(
        inputs.query.astype(np.float64),
        inputs.keys.astype(np.float64),
        inputs.values.astype(np.float64),
        inputs.pages,
        inputs.scale,
    )
    served = subject.grouped_decode(spec, inputs)
    peer = subject.plain_decode(spec, inputs)
    dtype, magnitude = subject.session.dtype, float(np.max(np.abs(oracle)))
    by_head = _by_head(served, oracle, peer, dtype)
    worst = max(range(len(by_head)), key=lambda head: _use(by_head[head]))
    peer_rms = metrics.rms(peer, oracle)
    measurements = [
        limits.exactly_none("non_finite", metrics.non_finite(served), "NaN or infinite outputs"),
        by_head[worst],
        limits.peer_rms("rms_error", metrics.rms(served, oracle), peer_rms, dtype, magnitude, "1"),
        limits.upstream_at_most(
            "max_abs_error", metrics.max_abs(served, oracle), limits.UPSTREAM_ATOL, "1", f"atol of {_UPSTREAM}"
        ),
        limits.upstream_at_most(
            "cosine_distance",
            1.0 - metrics.cosine(served, oracle),
            1.0 - limits.UPSTREAM_COSINE,
            "1",
            f"cosine above {limits.UPSTREAM_COSINE} in {_UPSTREAM}",
        ),
        limits.sane_peer(peer_rms, dtype, magnitude, "1"),
    ]
    evidence: dict[str, JsonValue] = {
        "worst": _worst_value(served, oracle, peer, *divmod(worst, spec.query_heads)),
        "heads": len(by_head),
        "heads_outside": sum(not head.within for head in by_head),
        "limit_use": _map(by_head, spec),
    }
    return CheckResult(tuple(measurements), evidence)


def _by_head(served: Values, oracle: Values, peer: Values, dtype: limits.Dtype) -> list[Measurement]:
    """The peer rule on the largest error of every head of every request, in order."""
    return [
        limits.peer_max_abs(
            "head_max_abs_error",
            metrics.max_abs(served[place], oracle[place]),
            metrics.max_abs(peer[place], oracle[place]),
            dtype,
            float(np.max(np.abs(oracle[place]))),
            "1",
        )
        for place in np.ndindex(served.shape[:2])
    ]


def _use(head: Measurement) -> float:
    """How much of its limit a head uses; infinite where it is NaN."""
    margin = head.margin
    return math.inf if not margin else 1.0 / margin


def _map(by_head: list[Measurement], spec: GroupedDecode) -> JsonValue:
    """How much of its limit every head uses, request by request."""
    window, heads = window_for(len(by_head)), spec.query_heads
    use = [math.nan if math.isnan(head.value) else _use(head) for head in by_head]
    rows = tuple(largest_of_each(use[start : start + heads], window) for start in range(0, len(use), heads))
    return LimitUseByHead(window=window, use=rows).as_evidence()


def _worst_value(served: Values, oracle: Values, peer: Values, request: int, head: int) -> dict[str, JsonValue]:
    entry = metrics.farthest(served[request, head], oracle[request, head])
    place = (request, head, entry)
    return {
        "request": request,
        "head": head,
        "entry": entry,
        "served": shown(served[place]),
        "oracle": shown(oracle[place]),
        "peer": shown(peer[place]),
    }
