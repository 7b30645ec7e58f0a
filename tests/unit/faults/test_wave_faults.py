"""Faults in the text of MLIR: where they act, that they act there alone, and that a fault without a place is an error."""

import pytest

from kit.batteries.upstream_attention import MULTI_HEAD, MULTI_QUERY, decode
from kit.errors import UsageFault
from kit.faults.catalogue import FAULTS, expected_red, parse_fault
from kit.faults.mlir_text import where_defined
from kit.faults.wave import changed_by_faults, changed_mlir, refuse_idle
from kit.faults.wave_catalogue import WAVE_FAULTS, wave_must_see
from kit.offline_spec import ExecuteMlir
from kit.plan import Case

MASKED = """\
  %8 = arith.cmpi slt, %1, %2 : vector<4xindex>
  %9 = arith.cmpi slt, %1, %3 : vector<4xindex>
  %10 = arith.select %9, %cst_1, %cst_2 : vector<4xi1>, vector<4xf32>
"""
LOOP = """\
#map = affine_map<()[s0] -> (s0 ceildiv 16)>
  %1 = affine.apply #map()[%grid]
  %2 = affine.apply #map()[%0]
  %3:2 = scf.for %arg = %c0 to %2 step %c1 iter_args(%a = %b) {
"""


def test_a_mask_is_widened_where_scores_are_masked_and_nowhere_else() -> None:
    changed = changed_mlir("phase_0", MASKED, [parse_fault("wave-mask-off-by-one")])
    assert changed.splitlines() == [
        "  %8 = arith.cmpi slt, %1, %2 : vector<4xindex>",
        "  %9 = arith.cmpi sle, %1, %3 : vector<4xindex>",
        "  %10 = arith.select %9, %cst_1, %cst_2 : vector<4xi1>, vector<4xf32>",
    ]


def test_the_bound_of_a_loop_is_rounded_down_and_the_grid_is_not() -> None:
    changed = changed_mlir("prefill_attention", LOOP, [parse_fault("wave-last-block-dropped")])
    assert changed.splitlines()[:4] == [
        "#floored_map = affine_map<()[s0] -> (s0 floordiv 16)>",
        "#map = affine_map<()[s0] -> (s0 ceildiv 16)>",
        "  %1 = affine.apply #map()[%grid]",
        "  %2 = affine.apply #floored_map()[%0]",
    ]


def test_of_two_values_of_one_name_the_nearest_above_is_meant() -> None:
    text = "%1 = a\n%1 = a\nuse(%1)\n%1 = a\n"
    assert where_defined(r"use\((%\w+)\)", "a", "b")(text) == "%1 = a\n%1 = b\nuse(%1)\n%1 = a\n"
    assert where_defined(r"use\((%\w+)\)", "a", "b")("use(%1)\n") == "use(%1)\n"


def test_a_scale_is_multiplied_and_keeps_its_digits() -> None:
    text = "%cst_1 = arith.constant dense<0.180336878> : vector<4xf32>\n%5 = arith.mulf %4, %cst_1 : vector<4xf32>\n"
    changed = changed_mlir("phase_0", text, [parse_fault("wave-scores-scaled=1.5")])
    assert "dense<2.705053170e-01>" in changed
    assert changed_mlir("prefill_attention", text, [parse_fault("wave-scores-scaled=1.5")]) == text


@pytest.mark.parametrize("fault", [kind.as_reported for kind in WAVE_FAULTS])
def test_a_fault_without_a_place_is_an_error(fault: str) -> None:
    wave = parse_fault(fault)
    kernels = ("phase_0", "phase_1", "extend_attention", "prefill_attention")
    refused = 0
    for kernel in kernels:
        try:
            assert changed_mlir(kernel, "module {}", [wave]) == "module {}"
        except UsageFault as problem:
            assert f"the fault '{wave.name}' finds no place in Wave's {kernel}" in str(problem)
            refused += 1
    assert refused
    with pytest.raises(UsageFault, match="was not launched"):
        refuse_idle([wave], kernels, ())
    refuse_idle([wave], kernels, kernels)


def test_other_faults_leave_the_text_as_it_is() -> None:
    assert changed_mlir("phase_0", MASKED, [parse_fault("kernel-empty-split")]) == MASKED


def test_the_catalogue_and_what_acts_name_the_same_faults() -> None:
    assert changed_by_faults() == {kind.name for kind in WAVE_FAULTS}
    assert all(FAULTS[kind.name] is kind for kind in WAVE_FAULTS)


@pytest.mark.parametrize(
    ("fault", "length", "must"),
    [
        ("wave-mask-off-by-one", 100, True),  # 13 tokens of a split in a block of 16
        ("wave-mask-off-by-one", 128, False),  # 16: the next block is not begun
        ("wave-last-block-dropped", 500, True),
        ("wave-split-rounded-down", 128, False),
        ("wave-split-rounded-down", 100, True),
        ("wave-empty-split", 5, True),
        ("wave-empty-split", 100, False),
        ("wave-split-weight-natural", 5, False),  # one token has a sum of 1, whose logarithm is 0
        ("wave-split-weight-natural", 100, True),
        ("wave-load-unmasked", 100, False),
        ("kernel-empty-split", 5, False),
    ],
)
def test_only_lengths_that_cannot_hide_a_fault_must_see_it(fault: str, length: int, must: bool) -> None:
    spec = ExecuteMlir(architecture="gfx950", attention=decode(MULTI_QUERY, length, "float16")[1])
    assert wave_must_see(fault, spec) is must
    case = Case(id="kernels/offline-wave-decode-execute/x", session="offline", spec=spec)
    assert expected_red((parse_fault(fault),), case) is must


@pytest.mark.parametrize("fault", [kind.name for kind in WAVE_FAULTS])
def test_the_decode_kernel_without_groups_need_not_see_what_has_no_place_there(fault: str) -> None:
    assert not wave_must_see(fault, ExecuteMlir(architecture="gfx950", attention=decode(MULTI_HEAD, 100, "float16")[1]))
