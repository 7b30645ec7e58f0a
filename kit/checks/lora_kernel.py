"""LoRA kernels against float64: request by request, with poison beyond every adapter's rank."""

from dataclasses import dataclass, replace

import numpy as np
from pydantic import JsonValue

from kit.checks import repeated
from kit.checks.heads import Heads
from kit.checks.outcome import CheckResult, shown
from kit.checks.repeated import Repeated
from kit.lora_kernel_spec import ExpertLora, LoraBatch, LoraKernel
from kit.measurement import Measurement
from kit.oracles import expert_lora, limits, lora_kernels, metrics
from kit.oracles.metrics import Values
from kit.subjects.kernels.library import Answer, Poison
from kit.subjects.kernels.subject import LoraSubject
from kit.synthetic.attention import Mask
from kit.synthetic.expert_lora import expert_lora_inputs
from kit.synthetic.lora_kernels import Owner, lora_inputs


@dataclass(frozen=True)
class _Asked:
    """One LoRA case: answers of the kernels, oracle and peer, [rows of all requests, outputs]; where nothing need be written, 0.

    Attributes:
        rows: of the requests that have any. bare: rows without an adapter.
    """

    served: Values
    oracle: Values
    peer: Values
    rows: tuple[int, ...]
    bare: Mask
    dtype: limits.Dtype

    def at_worst(self, found: Repeated) -> "_Asked":
        """With the answer that uses most of its limits."""
        return replace(self, served=found.worst(lambda out: float(np.max(replace(self, served=out).requests().use()))))

    def requests(self) -> Heads:
        """Request by request."""
        return Heads.of(self.served[:, None], self.oracle[:, None], self.peer[:, None], self.rows, self.dtype)

    def measurements(self, found: Repeated) -> list[Measurement]:
        """What is judged of every LoRA kernel."""
        magnitude = float(np.max(np.abs(self.oracle)))
        peer_rms = metrics.rms(self.peer, self.oracle)
        rms = metrics.rms(self.served, self.oracle)
        moved = metrics.differing(self.served[self.bare], self.oracle[self.bare])
        return [
            limits.exactly_none("non_finite", metrics.non_finite(self.served), "NaN or infinite outputs"),
            *(_renamed(measurement) for measurement in self.requests().measurements()),
            limits.peer_rms("rms_error", rms, peer_rms, self.dtype, magnitude, "1"),
            *found.measurements(),
            limits.exactly_none("base_changes", moved, "values of rows without an adapter"),
            limits.exactly_none("fallback", len(found.foreign()), "kernels that are not the library's"),
            limits.sane_peer(peer_rms, self.dtype, magnitude, "1"),
        ]

    def worst(self) -> dict[str, JsonValue]:
        """The entry that is farthest off in the worst request."""
        request = self.requests().worst()[0]
        start = sum(self.rows[:request])
        end = start + self.rows[request]
        row, entry = divmod(metrics.farthest(self.served[start:end], self.oracle[start:end]), self.served.shape[1])
        place = (start + row, entry)
        told: dict[str, JsonValue] = {"request": request, "row": row, "entry": entry}
        values = {"served": self.served, "oracle": self.oracle, "peer": self.peer}
        return told | {name: shown(value[place]) for name, value in values.items()}

    def evidence(self, found: Repeated) -> dict[str, JsonValue]:
        """What helps to understand a red case."""
        return {
            "worst": self.worst(),
            "requests_outside": self.requests().outside(),
            "kernels": list(found.answers[0].launched),
        }


def check(spec: LoraKernel, subject: LoraSubject) -> CheckResult:
    """Two calls, with NaN and with huge values in everything that must not matter.

    Raises:
        OracleDisagreement: this machine's reference cannot be trusted.
    """
    lora_kernels.check_known()
    inputs = lora_inputs(spec)
    written = _written(spec, inputs.owner)

    def call(poison: Poison) -> Answer:
        answer = subject.library.run(spec, inputs, poison)
        return replace(answer, out=np.where(written, answer.out, 0.0))

    found = repeated.ask(call)
    asked = _Asked(
        served=found.answers[0].out,
        oracle=lora_kernels.lora(spec, inputs),
        peer=subject.library.plain(spec, inputs),
        rows=tuple(count for count in spec.rows if count),
        bare=_bare(spec, inputs.owner),
        dtype=spec.dtype,
    ).at_worst(found)
    measurements = asked.measurements(found)
    if spec.op == "embedding":
        inexact = metrics.differing(asked.served, asked.oracle)
        measurements.append(limits.exactly_none("inexact", inexact, "values that were not copied"))
    return CheckResult(tuple(measurements), asked.evidence(found))


def check_experts(spec: ExpertLora, subject: LoraSubject) -> CheckResult:
    """As `check`, for LoRA on a mixture of experts.

    Raises:
        OracleDisagreement: this machine's reference cannot be trusted.
    """
    expert_lora.check_known()
    inputs = expert_lora_inputs(spec)

    def call(poison: Poison) -> Answer:
        answer = subject.experts.run(spec, inputs, poison)
        return replace(answer, out=answer.out.reshape(len(inputs.owner), -1))

    found = repeated.ask(call)
    oracle, peer = expert_lora.expert_lora(spec, inputs), subject.experts.plain(spec, inputs)
    asked = _Asked(
        served=found.answers[0].out,
        oracle=oracle.reshape(len(oracle), -1),
        peer=peer.reshape(len(peer), -1),
        rows=tuple(count for count in spec.rows if count),
        bare=_bare(spec, inputs.owner),
        dtype=spec.dtype,
    ).at_worst(found)
    overwritten = limits.exactly_none("overwritten", found.overwritten(), "values behind the rows asked for")
    return CheckResult((*asked.measurements(found), overwritten), asked.evidence(found))


def _written(spec: LoraKernel, owner: Owner) -> Mask:
    """Which outputs a kernel must write: all, but for x Aᵀ only the adapter's own rank."""
    if spec.op not in ("shrink", "embedding"):
        return np.ones((len(owner), sum(spec.outputs)), np.bool_)
    width = np.array(spec.ranks)[owner] * len(spec.outputs)
    return np.asarray(np.arange(len(spec.outputs) * spec.max_rank)[None, :] < width[:, None])


def _bare(spec: LoraBatch, owner: Owner) -> Mask:
    """Rows without an adapter."""
    return np.asarray(np.array(spec.ranks)[owner] == 0)


def _renamed(measurement: Measurement) -> Measurement:
    return measurement.model_copy(update={"name": measurement.name.replace("head_", "request_")})
