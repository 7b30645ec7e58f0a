"""The attention check against kernels that are right, or wrong in one way each."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode, Prefill
from kit.checks import NotApplicable, attention
from kit.checks.heads import Heads
from kit.checks.outcome import CheckResult
from kit.oracles.attention import Scoring, attend
from kit.oracles.metrics import Values
from kit.subjects.kernels.library import Answer
from kit.synthetic.attention import AttentionInputs, requests

SIZES = {"query_heads": 8, "kv_heads": 2, "head_dim": 16, "value_dim": 12}
SPEC = GroupedDecode(**SIZES, lengths=(33, 20))
EXTEND = Extend(**SIZES, prefixes=(20, 0), lengths=(5, 18), content="revealing", window=7)

Change = Callable[[Values], Values]


def half(array: Values) -> Values:
    return array.astype(np.float16).astype(np.float64)


def exact(spec: AttentionSpec, inputs: AttentionInputs) -> Values:
    scoring = Scoring(inputs.scale, spec.logit_cap, inputs.sinks, spec.temperature_length)
    return attend(list(requests(spec, inputs)), scoring)


@dataclass
class Kernel:
    """A kernel that rounds its result to float16, after a change; it may depend on poison, write too far or fall back."""

    change: Change = lambda out: out
    asked: Callable[[AttentionSpec], AttentionSpec] = lambda spec: spec
    seen: AttentionInputs | None = None
    leak: float = 0.0
    overwritten: int = 0
    foreign: tuple[str, ...] = ()
    refusal: str | None = None
    facts: dict[str, str] = field(default_factory=dict)

    def refuses(self, spec: AttentionSpec) -> str | None:
        return self.refusal

    def attend(self, spec: AttentionSpec, inputs: AttentionInputs, poison: str) -> Answer:
        out = half(self.change(exact(spec, inputs)))
        if poison == "huge":
            out[0, 0, 0] += self.leak
        return Answer(out, self.overwritten, ("kernel",), self.foreign)


@dataclass
class Subject:
    """Beside a peer that rounds the result to one bit less."""

    library: Kernel
    device: str = "cpu"
    facts: dict[str, str] = field(default_factory=dict)

    def plain(self, spec: AttentionSpec, inputs: AttentionInputs, asked: object) -> Values:
        values = half(exact(spec, inputs))
        return values + np.where(np.arange(values.size).reshape(values.shape) % 3 == 0, 2**-11, 0) * np.abs(values)


def result(kernel: Kernel, spec: AttentionSpec = SPEC) -> CheckResult:
    return attention.check(spec, Subject(kernel))  # type: ignore[arg-type]


def red(kernel: Kernel, spec: AttentionSpec = SPEC) -> set[str]:
    return {m.name for m in result(kernel, spec).measurements if not m.within}


@pytest.mark.parametrize("spec", [SPEC, EXTEND, Prefill(**{**SIZES, "value_dim": 16}, lengths=(17, 1))])
def test_a_kernel_that_rounds_is_green(spec: AttentionSpec) -> None:
    assert red(Kernel(), spec) == set()


def test_zeros_are_red() -> None:
    assert red(Kernel(lambda out: 0 * out)) >= {"head_max_abs_error", "head_rms_error", "rms_error"}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_entry_that_was_not_written_is_red_and_named(value: float) -> None:
    def change(out: Values) -> Values:
        out[1, 5, 3] = value
        return out

    found = result(Kernel(change))
    assert {m.name for m in found.measurements if not m.within} >= {"non_finite", "head_max_abs_error", "rms_error"}
    named = {key: found.evidence["worst"][key] for key in ("request", "row", "head", "entry")}
    assert named == {"request": 1, "row": 0, "head": 5, "entry": 3}
    assert found.evidence["heads_outside"] == 1


def test_one_head_that_is_slightly_off_is_red() -> None:
    def change(out: Values) -> Values:
        out[0, 2] *= 1.02
        return out

    assert {"head_max_abs_error", "head_rms_error"} <= red(Kernel(change))


def test_heads_of_the_wrong_group_are_red() -> None:
    assert "head_max_abs_error" in red(Kernel(lambda out: np.roll(out, 1, axis=1)))


def test_an_answer_that_depends_on_poison_is_red() -> None:
    assert red(Kernel(leak=2**-8)) == {"poison_changes"}


def test_writing_behind_the_rows_is_red() -> None:
    assert red(Kernel(overwritten=3)) == {"overwritten"}


def test_a_silent_fallback_is_red_and_named() -> None:
    found = result(Kernel(foreign=("other.kernel",)))
    assert [m.name for m in found.measurements if not m.within] == ["fallback"]
    assert found.evidence["foreign"] == ["other.kernel"]


def test_what_the_library_refuses_does_not_apply() -> None:
    with pytest.raises(NotApplicable, match="no such kernel"):
        result(Kernel(refusal="no such kernel"))


class OneShort(Kernel):
    """A kernel whose window is one position too short, or too long."""

    def attend(self, spec: AttentionSpec, inputs: AttentionInputs, poison: str) -> Answer:
        from kit.synthetic.attention import attention_inputs

        changed = attention_inputs(spec.model_copy(update={"window": spec.window + self.overwritten}))
        return Answer(half(exact(spec, replace(inputs, visible=changed.visible))), 0, ("kernel",), ())


def test_positions_beside_a_window_are_named() -> None:
    short, long = result(OneShort(overwritten=-1), EXTEND), result(OneShort(overwritten=1), EXTEND)
    assert {m.name for m in short.measurements if not m.within} >= {"wrongly_excluded", "head_max_abs_error"}
    assert {"row": 2, "head": 0, "position": 15} in short.evidence["wrongly_excluded"]["first"]  # 20 + 2 − 7
    assert {m.name for m in long.measurements if not m.within} >= {"wrongly_included"}
    assert "wrongly_excluded" not in long.evidence


def test_upstream_constants_are_judged_where_the_case_is_upstreams() -> None:
    names = {m.name for m in result(Kernel(), SPEC.model_copy(update={"upstream": True})).measurements}
    assert {"max_abs_error", "cosine_distance"} <= names
    assert not {"max_abs_error", "cosine_distance"} & {m.name for m in result(Kernel()).measurements}


def test_a_head_of_one_value_may_be_off_by_a_unit_and_no_more() -> None:
    """All its entries are rounded alike: rms and largest error are one number. One value a head, 0.75 … 1: u is 2⁻¹¹."""
    unit = 2.0**-11
    constant = np.full((1, 2, 64), 0.75)
    for off, allowed in ((0.9, True), (1.1, False)):
        served = constant.copy()
        served[0, 1] += off * unit
        measured = Heads.of(served, constant, constant, (1,), "float16").measurements()
        assert [m.within for m in measured] == [allowed, allowed], off
    spread = np.linspace(0.5, 0.9, 128).reshape(1, 2, 64)
    measured = {m.name: m for m in Heads.of(spread + 0.9 * unit, spread, spread, (1,), "float16").measurements()}
    assert measured["head_max_abs_error"].within
    assert not measured["head_rms_error"].within, "64 different values are not all off by a unit to one side"
