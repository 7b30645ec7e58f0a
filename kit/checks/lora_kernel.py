"""LoRA kernels against float64: request by request, with poison beyond every adapter's rank."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from pydantic import JsonValue

from kit.checks.heads import Heads
from kit.checks.outcome import CheckResult, shown
from kit.lora_kernel_spec import ExpertLora, LoraBatch, LoraKernel
from kit.measurement import Measurement
from kit.oracles import expert_lora, limits, lora_kernels, metrics
from kit.oracles.metrics import Values
from kit.subjects.kernels.library import Answer, Poison
from kit.subjects.kernels.subject import LoraSubject
from kit.synthetic.attention import Mask
from kit.synthetic.expert_lora import expert_lora_inputs
from kit.synthetic.lora_kernels import Owner, lora_inputs

_POISONS: Final[tuple[Poison, Poison]] = ("nan", "huge")


@dataclass(frozen=True)
class _Asked:
    """One LoRA case: answers of the kernels, oracle and peer, [rows of all requests, outputs]; where nothing need be written, 0.

    Attributes:
        rows: of the requests that have any. bare: rows without an adapter.
    """

    served: Values
    second: Values
    oracle: Values
    peer: Values
    rows: tuple[int, ...]
    bare: Mask
    dtype: limits.Dtype

    def requests(self) -> Heads:
        """Request by request."""
        return Heads.of(self.served[:, None], self.oracle[:, None], self.peer[:, None], self.rows, self.dtype)

    def measurements(self, answers: tuple[Answer, Answer]) -> list[Measurement]:
        """What is judged of every LoRA kernel."""
        magnitude = float(np.max(np.abs(self.oracle)))
        peer_rms = metrics.rms(self.peer, self.oracle)
        rms = metrics.rms(self.served, self.oracle)
        foreign = {name for answer in answers for name in answer.foreign}
        moved = metrics.differing(self.served[self.bare], self.oracle[self.bare])
        return [
            limits.exactly_none("non_finite", metrics.non_finite(self.served), "NaN or infinite outputs"),
            *(_renamed(measurement) for measurement in self.requests().measurements()),
            limits.peer_rms("rms_error", rms, peer_rms, self.dtype, magnitude, "1"),
            limits.exactly_none(
                "poison_changes",
                metrics.differing(self.served, self.second),
                "outputs that depend on what must not matter",
            ),
            limits.exactly_none("base_changes", moved, "values of rows without an adapter"),
            limits.exactly_none("fallback", len(foreign), "kernels that are not the library's"),
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

    def evidence(self, answer: Answer) -> dict[str, JsonValue]:
        """What helps to understand a red case."""
        return {
            "worst": self.worst(),
            "requests_outside": self.requests().outside(),
            "kernels": list(answer.launched),
        }


def check(spec: LoraKernel, subject: LoraSubject) -> CheckResult:
    """Two calls, with NaN and with huge values in everything that must not matter.

    Raises:
        OracleDisagreement: this machine's reference cannot be trusted.
    """
    lora_kernels.check_known()
    inputs = lora_inputs(spec)
    written = _written(spec, inputs.owner)
    answer, again = (subject.library.run(spec, inputs, poison) for poison in _POISONS)
    asked = _Asked(
        served=np.where(written, answer.out, 0.0),
        second=np.where(written, again.out, 0.0),
        oracle=lora_kernels.lora(spec, inputs),
        peer=subject.library.plain(spec, inputs),
        rows=tuple(count for count in spec.rows if count),
        bare=_bare(spec, inputs.owner),
        dtype=spec.dtype,
    )
    measurements = asked.measurements((answer, again))
    if spec.op == "embedding":
        inexact = metrics.differing(asked.served, asked.oracle)
        measurements.append(limits.exactly_none("inexact", inexact, "values that were not copied"))
    return CheckResult(tuple(measurements), asked.evidence(answer))


def check_experts(spec: ExpertLora, subject: LoraSubject) -> CheckResult:
    """As `check`, for LoRA on a mixture of experts.

    Raises:
        OracleDisagreement: this machine's reference cannot be trusted.
    """
    expert_lora.check_known()
    inputs = expert_lora_inputs(spec)
    answer, again = (subject.experts.run(spec, inputs, poison) for poison in _POISONS)
    served, second, oracle, peer = (
        values.reshape(len(values), -1)
        for values in (
            answer.out,
            again.out,
            expert_lora.expert_lora(spec, inputs),
            subject.experts.plain(spec, inputs),
        )
    )
    rows = tuple(count for count in spec.rows if count)
    asked = _Asked(served, second, oracle, peer, rows, _bare(spec, inputs.owner), spec.dtype)
    overwritten = answer.overwritten + again.overwritten
    measurements = [
        *asked.measurements((answer, again)),
        limits.exactly_none("overwritten", overwritten, "values behind the rows asked for"),
    ]
    return CheckResult(tuple(measurements), asked.evidence(answer))


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
