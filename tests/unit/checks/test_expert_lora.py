"""The check of LoRA on experts against kernels that are right, or wrong in one way each."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from kit.checks import lora_kernel
from kit.lora_kernel_spec import ExpertLora
from kit.oracles.expert_lora import expert_lora
from kit.oracles.metrics import Values
from kit.subjects.kernels.library import Answer
from kit.synthetic.expert_lora import ExpertLoraInputs

Change = Callable[[ExpertLora, ExpertLoraInputs], tuple[ExpertLora, ExpertLoraInputs]]


def spec(place: str) -> ExpertLora:
    return ExpertLora.model_validate(
        {
            "place": place,
            "experts": 6,
            "visited": 4,
            "chosen": 2,
            "inputs": 24,
            "outputs": 12,
            "max_rank": 8,
            "ranks": (5, 0, 8),
            "adapters": (0, 1, 2),
            "rows": (3, 1, 4),
        }
    )


def half(values: Values) -> Values:
    return values.astype(np.float16).astype(np.float64)


def same(asked: ExpertLora, inputs: ExpertLoraInputs) -> tuple[ExpertLora, ExpertLoraInputs]:
    return asked, inputs


@dataclass
class Experts:
    """Kernels that round to float16, and may take something else for their inputs."""

    change: Change = same
    leak: float = 0.0
    behind: int = 0

    def run(self, asked: ExpertLora, inputs: ExpertLoraInputs, poison: str) -> Answer:
        out = half(expert_lora(*self.change(asked, inputs)))
        if poison == "huge":
            out[0, 0, 0] += self.leak
        return Answer(out, self.behind, ("kernel",), ())

    def plain(self, asked: ExpertLora, inputs: ExpertLoraInputs) -> Values:
        values = half(expert_lora(asked, inputs))
        return values + np.where(np.arange(values.size).reshape(values.shape) % 3 == 0, 2**-11, 0) * np.abs(values)


@dataclass
class Subject:
    experts: Experts


def red(experts: Experts, place: str) -> set[str]:
    found = lora_kernel.check_experts(spec(place), Subject(experts))  # type: ignore[arg-type]
    return {m.name for m in found.measurements if not m.within}


def other_expert(asked: ExpertLora, inputs: ExpertLoraInputs) -> tuple[ExpertLora, ExpertLoraInputs]:
    """The first row's experts in the other order, and only there."""
    visits = inputs.visits.copy()
    visits[0] = visits[0, ::-1]
    known = replace(inputs, a=np.nan_to_num(inputs.a), b=np.nan_to_num(inputs.b))
    return asked, replace(known, visits=visits)


def other_adapter(asked: ExpertLora, inputs: ExpertLoraInputs) -> tuple[ExpertLora, ExpertLoraInputs]:
    owner = inputs.owner.copy()
    owner[-1] = 0
    return asked, replace(inputs, owner=owner, a=np.nan_to_num(inputs.a), b=np.nan_to_num(inputs.b))


def delta_without_adapter(asked: ExpertLora, inputs: ExpertLoraInputs) -> tuple[ExpertLora, ExpertLoraInputs]:
    base = inputs.base.copy()
    base[inputs.owner == 1] += 2.0**-6
    return asked, replace(inputs, base=base)


def no_shares(asked: ExpertLora, inputs: ExpertLoraInputs) -> tuple[ExpertLora, ExpertLoraInputs]:
    return asked, replace(inputs, shares=np.ones_like(inputs.shares))


@pytest.mark.parametrize("place", ["gate-up", "down"])
def test_kernels_that_round_are_green(place: str) -> None:
    assert red(Experts(), place) == set()


@pytest.mark.parametrize("place", ["gate-up", "down"])
@pytest.mark.parametrize("change", [other_expert, other_adapter])
def test_a_row_with_the_weights_of_another_is_red(place: str, change: Change) -> None:
    assert {"request_max_abs_error", "request_rms_error"} <= red(Experts(change), place)


def test_a_delta_on_rows_without_an_adapter_is_red() -> None:
    assert "base_changes" in red(Experts(delta_without_adapter), "gate-up")


def test_the_routers_weights_count_in_the_second_projection_alone() -> None:
    assert "request_max_abs_error" in red(Experts(no_shares), "down")
    assert red(Experts(no_shares), "gate-up") == set()


def test_what_depends_on_poison_or_writes_behind_the_rows_is_red() -> None:
    assert red(Experts(leak=2.0**-5), "down") == {"poison_changes"}
    assert red(Experts(behind=1), "down") == {"overwritten"}
