"""The LoRA kernel check against kernels that are right, or wrong in one way each."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from kit.batteries.lora_kernel_cases import BATCHES, MAX_RANK
from kit.checks import lora_kernel
from kit.lora_kernel_spec import LoraKernel, LoraOp
from kit.oracles.lora_kernels import lora
from kit.oracles.metrics import Values
from kit.subjects.kernels.library import Answer
from kit.synthetic.lora_kernels import LoraInputs

Asked = Callable[[LoraKernel], LoraKernel]


def spec(op: LoraOp) -> LoraKernel:
    outputs = (24, 12, 12) if op == "qkv" else (20,)
    return LoraKernel(op=op, inputs=40, outputs=outputs, max_rank=MAX_RANK, **BATCHES["mixed"]._asdict())


def half(values: Values) -> Values:
    return values.astype(np.float16).astype(np.float64)


@dataclass
class Kernel:
    """A kernel that rounds to float16, and may be asked something else than the case, or change its answer."""

    asked: Asked = lambda spec: spec
    change: Callable[[Values, LoraInputs], Values] = lambda out, inputs: out
    leak: float = 0.0
    facts: dict[str, str] = field(default_factory=dict)

    def run(self, spec: LoraKernel, inputs: LoraInputs, poison: str) -> Answer:
        out = half(self.change(lora(self.asked(spec), inputs), inputs))
        if poison == "huge":
            out[0, 0] += self.leak
        return Answer(out, 0, ("kernel",), ())

    def plain(self, spec: LoraKernel, inputs: LoraInputs) -> Values:
        values = half(lora(spec, inputs))
        if spec.op == "embedding":
            return values
        return values + np.where(np.arange(values.size).reshape(values.shape) % 3 == 0, 2**-11, 0) * np.abs(values)


@dataclass
class Subject:
    library: Kernel


def red(kernel: Kernel, op: LoraOp = "qkv") -> set[str]:
    found = lora_kernel.check(spec(op), Subject(kernel))  # type: ignore[arg-type]
    return {m.name for m in found.measurements if not m.within}


@pytest.mark.parametrize("op", ["shrink", "expand", "qkv", "embedding"])
def test_a_kernel_that_rounds_is_green(op: LoraOp) -> None:
    assert red(Kernel(), op) == set()


def scaled(asked: LoraKernel) -> LoraKernel:
    return asked.model_copy(update={"scalings": tuple(1.02 * scaling for scaling in asked.scalings)})


def test_a_scaling_that_is_slightly_off_is_red() -> None:
    assert "request_max_abs_error" in red(Kernel(asked=scaled))


def test_a_delta_on_rows_without_an_adapter_is_red() -> None:
    def change(out: Values, inputs: LoraInputs) -> Values:
        out[inputs.owner == 1] += 2**-7
        return out

    assert "base_changes" in red(Kernel(change=change))


def test_the_adapter_of_another_request_is_red() -> None:
    def swapped(asked: LoraKernel) -> LoraKernel:
        return asked.model_copy(update={"scalings": asked.scalings[::-1]})

    assert {"request_max_abs_error", "rms_error"} <= red(Kernel(asked=swapped))


def test_an_answer_that_depends_on_poison_is_red() -> None:
    assert red(Kernel(leak=2**-5)) == {"poison_changes"}


def test_an_embedding_is_copied_bit_by_bit() -> None:
    assert "inexact" in red(Kernel(change=lambda out, inputs: out * (1 + 2**-9)), "embedding")
