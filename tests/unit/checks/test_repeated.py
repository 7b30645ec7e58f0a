"""What follows the poison is told from what no two calls have alike."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from kit.attention_spec import AttentionSpec, GroupedDecode
from kit.checks import attention, repeated
from kit.measurement import Measurement
from kit.oracles.attention import Scoring, attend
from kit.oracles.metrics import Values
from kit.subjects.kernels.library import Answer
from kit.subjects.kernels.subject import KernelSubject
from kit.subjects.kernels.torch_sdpa import TorchAttention
from kit.synthetic.attention import AttentionInputs, requests

SPEC = GroupedDecode(query_heads=4, kv_heads=2, head_dim=16, value_dim=16, lengths=(9, 3))


@dataclass
class Kernel:
    """Right but for rounding, and for what `change` does to the answer of a call: number and poison of the call."""

    change: Callable[[Values, int, str], None]
    repeatable: bool = False
    calls: int = 0
    facts: dict[str, str] = field(default_factory=dict)

    def refuses(self, spec: AttentionSpec) -> str | None:
        return None

    def attend(self, spec: AttentionSpec, inputs: AttentionInputs, poison: str) -> Answer:
        out = attend(list(requests(spec, inputs)), Scoring(inputs.scale)).astype(np.float16).astype(np.float64)
        self.change(out, self.calls, poison)
        self.calls += 1
        return Answer(out, 0, ("kernel",), (), self.repeatable)


def measured(kernel: Kernel) -> dict[str, Measurement]:
    found = attention.check(SPEC, KernelSubject(kernel, "cpu", {}))
    return {m.name: m for m in found.measurements}


def red(kernel: Kernel) -> set[str]:
    return {name for name, m in measured(kernel).items() if not m.within}


def one_unit_by_chance(out: Values, call: int, poison: str) -> None:
    """A tie of two roundings, as one value of torch's attention on an H200 had it (one in 12,240)."""
    if call in (1, 4, 5, 9, 12):
        out[0, 1, 2] += 2.0**-12


def by_poison(out: Values, call: int, poison: str) -> None:
    if poison == "huge":
        out[0, 1, 2] += 2.0**-12


def far_off_once(out: Values, call: int, poison: str) -> None:
    one_unit_by_chance(out, call, poison)
    if call == 1:
        out[1, 3, 4] += 0.25


def test_a_rounding_that_changes_by_chance_is_told_and_not_judged() -> None:
    found = measured(Kernel(one_unit_by_chance))
    assert all(m.within for m in found.values())
    assert found["unrepeatable"].value == 1.0 and found["poison_changes"].value == 0.0


def test_it_is_judged_where_the_kernel_promises_to_repeat_itself() -> None:
    kernel = Kernel(lambda out, call, poison: by_poison(out, call, "huge" if call else "nan"), repeatable=True)
    assert red(kernel) == {"poison_changes"} and kernel.calls == 2


def test_what_follows_the_poison_is_red_whatever_the_kernel_promises() -> None:
    for repeatable in (False, True):
        assert red(Kernel(by_poison, repeatable)) == {"poison_changes"}

    def both(out: Values, call: int, poison: str) -> None:
        one_unit_by_chance(out, call, poison)
        out[1, 0, 0] += 2.0**-12 if poison == "huge" else 0.0

    assert red(Kernel(both)) == {"poison_changes"}


def test_every_call_keeps_the_limits() -> None:
    assert {"head_max_abs_error", "head_rms_error"} <= red(Kernel(far_off_once))


def test_a_kernel_that_repeats_itself_is_called_twice() -> None:
    kernel = Kernel(lambda out, call, poison: None)
    assert red(kernel) == set() and kernel.calls == 2
    assert "unrepeatable" not in measured(Kernel(lambda out, call, poison: None))


@pytest.mark.parametrize("chance", [0.5, 0.02])
def test_chance_is_not_taken_for_poison(chance: float) -> None:
    """3,000 values that each take one of two roundings: none of them follows the poison in 16 pairs of calls."""
    draws = np.random.Generator(np.random.Philox(key=7))

    def call(poison: str) -> Answer:
        return Answer(1.0 + (draws.random((3000, 1, 1)) < chance) * 2.0**-10, 0, (), (), repeatable=False)

    found = repeated.ask(call)
    assert found.poison_changes == 0 and found.unrepeatable > 100


def test_torch_promises_no_equal_bits() -> None:
    from kit.synthetic.attention import attention_inputs

    assert not TorchAttention("cpu").attend(SPEC, attention_inputs(SPEC), "nan").repeatable
