"""The kernel check against kernels that are right, or wrong in one way each."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from kit.checks import grouped_decode
from kit.oracles import attention
from kit.oracles.metrics import Values
from kit.plan import GroupedDecode
from kit.synthetic.attention import DecodeInputs

SPEC = GroupedDecode(batch=2, query_heads=8, kv_heads=2, head_dim=16, value_dim=12, length=33)

Change = Callable[[Values, DecodeInputs], Values]


def exact(inputs: DecodeInputs) -> Values:
    arrays = [array.astype(np.float64) for array in (inputs.query, inputs.keys, inputs.values)]
    return attention.grouped_decode(*arrays, inputs.pages, inputs.scale)


def half(array: Values) -> Values:
    return array.astype(np.float16).astype(np.float64)


class Kernels:
    """A kernel that rounds its result to float16, after `change`; the peer rounds the result to one bit less."""

    session = SimpleNamespace(dtype="float16")

    def __init__(self, change: Change) -> None:
        self._change = change

    def grouped_decode(self, spec: GroupedDecode, inputs: DecodeInputs) -> Values:
        return half(self._change(exact(inputs), inputs))

    def plain_decode(self, spec: GroupedDecode, inputs: DecodeInputs) -> Values:
        values = half(exact(inputs))
        return values + np.where(np.arange(values.size).reshape(values.shape) % 3 == 0, 2**-11, 0) * np.abs(values)


def red(change: Change) -> set[str]:
    result = grouped_decode.check(SPEC, Kernels(change))
    return {m.name for m in result.measurements if not m.within}


def test_a_kernel_that_rounds_is_green() -> None:
    assert red(lambda out, inputs: out) == set()


def test_zeros_are_red() -> None:
    assert red(lambda out, inputs: 0 * out) >= {"head_max_abs_error", "rms_error", "cosine_distance"}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_entry_that_was_not_written_is_red_and_named(value: float) -> None:
    def change(out: Values, inputs: DecodeInputs) -> Values:
        out[1, 5, 3] = value
        return out

    result = grouped_decode.check(SPEC, Kernels(change))
    assert {m.name for m in result.measurements if not m.within} >= {"non_finite", "head_max_abs_error", "rms_error"}
    assert result.evidence["worst"] | {"served": 0, "oracle": 0, "peer": 0} == {
        "request": 1,
        "head": 5,
        "entry": 3,
        "served": 0,
        "oracle": 0,
        "peer": 0,
    }
    assert result.evidence["heads_outside"] == 1


def test_one_head_that_is_slightly_off_is_red() -> None:
    def change(out: Values, inputs: DecodeInputs) -> Values:
        out[0, 2] *= 1.02
        return out

    assert "head_max_abs_error" in red(change)


def test_two_swapped_pages_are_red() -> None:
    def change(out: Values, inputs: DecodeInputs) -> Values:
        keys = inputs.keys.astype(np.float64)
        first, second = inputs.pages[0][:2]
        keys[[first, second]] = keys[[second, first]]
        query, values = inputs.query.astype(np.float64), inputs.values.astype(np.float64)
        return attention.grouped_decode(query, keys, values, inputs.pages, inputs.scale)

    assert "head_max_abs_error" in red(change)


def test_a_last_token_that_is_left_out_is_red() -> None:
    def change(out: Values, inputs: DecodeInputs) -> Values:
        arrays = [array.astype(np.float64) for array in (inputs.query, inputs.keys, inputs.values)]
        return attention.grouped_decode(*arrays, [slots[:-1] for slots in inputs.pages], inputs.scale)

    assert "head_max_abs_error" in red(change)


def test_heads_of_the_wrong_group_are_red() -> None:
    assert "head_max_abs_error" in red(lambda out, inputs: np.roll(out, 1, axis=1))
