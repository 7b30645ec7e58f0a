"""LoRA kernels against float64: request by request, with poison beyond every adapter's rank."""

import numpy as np
from pydantic import JsonValue

from kit.checks.heads import Heads
from kit.checks.outcome import CheckResult, shown
from kit.lora_kernel_spec import LoraKernel
from kit.measurement import Measurement
from kit.oracles import limits, lora_kernels, metrics
from kit.oracles.metrics import Values
from kit.subjects.kernels.subject import LoraSubject
from kit.synthetic.attention import Mask
from kit.synthetic.lora_kernels import Owner, lora_inputs


def check(spec: LoraKernel, subject: LoraSubject) -> CheckResult:
    """Two calls, with NaN and with huge values in everything that must not matter.

    Raises:
        OracleDisagreement: this machine's reference cannot be trusted.
    """
    lora_kernels.check_known()
    inputs = lora_inputs(spec)
    oracle = lora_kernels.lora(spec, inputs)
    written = _written(spec, inputs.owner)
    peer = subject.library.plain(spec, inputs)
    answer, again = (subject.library.run(spec, inputs, poison) for poison in ("nan", "huge"))
    served, second = np.where(written, answer.out, 0.0), np.where(written, again.out, 0.0)
    rows = tuple(count for count in spec.rows if count)
    requests = Heads.of(served[:, None], oracle[:, None], peer[:, None], rows, spec.dtype)
    magnitude = float(np.max(np.abs(oracle)))
    peer_rms = metrics.rms(peer, oracle)
    measurements: list[Measurement] = [
        limits.exactly_none("non_finite", metrics.non_finite(served), "NaN or infinite outputs"),
        *(_renamed(measurement) for measurement in requests.measurements()),
        limits.peer_rms("rms_error", metrics.rms(served, oracle), peer_rms, spec.dtype, magnitude, "1"),
        limits.exactly_none(
            "poison_changes", metrics.differing(served, second), "outputs that depend on what must not matter"
        ),
        limits.exactly_none(
            "base_changes", _base_changes(spec, inputs.owner, served, oracle), "values of rows without an adapter"
        ),
        limits.exactly_none("fallback", len({*answer.foreign, *again.foreign}), "kernels that are not the library's"),
        limits.sane_peer(peer_rms, spec.dtype, magnitude, "1"),
    ]
    if spec.op == "embedding":
        measurements.append(
            limits.exactly_none("inexact", metrics.differing(served, oracle), "values that were not copied")
        )
    evidence: dict[str, JsonValue] = {
        "worst": _worst(served, oracle, peer, rows, requests.worst()[0]),
        "requests_outside": requests.outside(),
        "kernels": list(answer.launched),
    }
    return CheckResult(tuple(measurements), evidence)


def _written(spec: LoraKernel, owner: Owner) -> Mask:
    """Which outputs a kernel must write: all, but for x Aᵀ only the adapter's own rank."""
    if spec.op not in ("shrink", "embedding"):
        return np.ones((len(owner), sum(spec.outputs)), np.bool_)
    width = np.array(spec.ranks)[owner] * len(spec.outputs)
    return np.asarray(np.arange(len(spec.outputs) * spec.max_rank)[None, :] < width[:, None])


def _base_changes(spec: LoraKernel, owner: Owner, served: Values, oracle: Values) -> int:
    bare = np.array(spec.ranks)[owner] == 0
    return metrics.differing(served[bare], oracle[bare])


def _renamed(measurement: Measurement) -> Measurement:
    return measurement.model_copy(update={"name": measurement.name.replace("head_", "request_")})


def _worst(served: Values, oracle: Values, peer: Values, rows: tuple[int, ...], request: int) -> JsonValue:
    start = sum(rows[:request])
    end = start + rows[request]
    row, entry = divmod(metrics.farthest(served[start:end], oracle[start:end]), served.shape[1])
    place = (start + row, entry)
    return {
        "request": request,
        "row": row,
        "entry": entry,
        "served": shown(served[place]),
        "oracle": shown(oracle[place]),
        "peer": shown(peer[place]),
    }
