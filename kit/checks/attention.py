"""Attention kernels against float64: head by head, with poison, and with values that reveal which positions were counted."""

from itertools import accumulate

import numpy as np
from pydantic import JsonValue

from kit.attention_spec import AttentionSpec, Extend, Prefill
from kit.checks import repeated
from kit.checks.heads import Heads
from kit.checks.outcome import CheckResult, NotApplicable, shown
from kit.checks.revealed import Revealed
from kit.measurement import Measurement
from kit.oracles import attention, canary_attention, limits, metrics
from kit.oracles.attention import Scoring
from kit.oracles.metrics import Values
from kit.subjects.kernels.subject import KernelSubject
from kit.synthetic.attention import attention_inputs, requests
from kit.upstream_names import COSINE, MAX_ABS

_UPSTREAM = "test_wave_attention_kernels.py of SGLang"


def check(spec: AttentionSpec, subject: KernelSubject) -> CheckResult:
    """Two calls of the kernel, with NaN and with huge values in everything that must not matter.

    Raises:
        NotApplicable: the installed library cannot be asked this.
        OracleDisagreement: this machine's reference cannot be trusted.
    """
    if reason := subject.library.refuses(spec):
        raise NotApplicable(reason)
    canary_attention.check()
    inputs = attention_inputs(spec)
    asked = list(requests(spec, inputs))
    oracle = attention.attend(asked, Scoring(inputs.scale, spec.logit_cap, inputs.sinks, spec.temperature_length))
    peer = subject.plain(spec, inputs, asked)
    found = repeated.ask(lambda poison: subject.library.attend(spec, inputs, poison))
    served = found.worst(lambda out: float(np.max(Heads.of(out, oracle, peer, inputs.new, spec.dtype).use())))
    heads = Heads.of(served, oracle, peer, inputs.new, spec.dtype)
    magnitude = float(np.max(np.abs(oracle)))
    score = attention.largest_score(asked, inputs.scale)
    measurements = [
        limits.exactly_none("non_finite", metrics.non_finite(served), "NaN or infinite outputs"),
        *heads.measurements(),
        limits.peer_rms(
            "rms_error", metrics.rms(served, oracle), metrics.rms(peer, oracle), spec.dtype, magnitude, "1"
        ),
        *found.measurements(),
        limits.exactly_none("overwritten", found.overwritten(), "values behind the rows asked for"),
        limits.exactly_none("fallback", len(found.foreign()), "kernels that are not the library's"),
        limits.sane_peer(metrics.rms(peer, oracle), spec.dtype, magnitude, "1", score),
        limits.context(COSINE, metrics.cosine(served, peer), "1"),
        limits.context(MAX_ABS, metrics.max_abs(served, peer), "1"),
    ]
    evidence: dict[str, JsonValue] = {
        "worst": _worst_value(served, oracle, peer, inputs.new, heads.worst()),
        "heads": int(heads.largest.size),
        "heads_outside": heads.outside(),
        "limit_use": heads.drawn().as_evidence(),
        "kernels": list(found.answers[0].launched),
    }
    if inputs.revealed:
        revealed = Revealed.of(served, oracle, inputs.revealed)
        measurements += revealed.measurements()
        evidence |= revealed.evidence()
    if found.foreign():
        evidence["foreign"] = list(found.foreign())
    if spec.upstream:
        measurements += _upstream(spec, served, oracle)
    return CheckResult(tuple(measurements), evidence)


def _upstream(spec: AttentionSpec, served: Values, oracle: Values) -> list[Measurement]:
    """The constants of the upstream test, against the oracle instead of another kernel."""
    if isinstance(spec, Extend):
        share = metrics.share_beyond(served, oracle, limits.UPSTREAM_RTOL)
        note = f"beyond rtol {limits.UPSTREAM_RTOL:g} of {_UPSTREAM}, which compares kernels that round alike"
        return [limits.context("share_beyond_rtol", share, "1", note)]
    cosine = limits.UPSTREAM_PREFILL_COSINE if isinstance(spec, Prefill) else limits.UPSTREAM_COSINE
    return [
        limits.upstream_at_most(
            "max_abs_error", metrics.max_abs(served, oracle), limits.UPSTREAM_ATOL, "1", f"atol of {_UPSTREAM}"
        ),
        limits.upstream_at_most(
            "cosine_distance",
            1.0 - metrics.cosine(served, oracle),
            1.0 - cosine,
            "1",
            f"cosine above {cosine} in {_UPSTREAM}",
        ),
    ]


def _worst_value(
    served: Values, oracle: Values, peer: Values, rows: tuple[int, ...], worst: tuple[int, int]
) -> dict[str, JsonValue]:
    """The entry that is farthest off in the worst head."""
    request, head = worst
    start, end = (0, *accumulate(rows))[request : request + 2]
    row, entry = divmod(metrics.farthest(served[start:end, head], oracle[start:end, head]), served.shape[2])
    place = (start + row, head, entry)
    return {
        "request": request,
        "row": row,
        "head": head,
        "entry": entry,
        "served": shown(served[place]),
        "oracle": shown(oracle[place]),
        "peer": shown(peer[place]),
    }
