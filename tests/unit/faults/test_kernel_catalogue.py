"""The faults that the kernels battery must catch are there, and every profile with its kernels has a case about each."""

import pytest

from kit.attention_spec import Attention
from kit.batteries import kernels
from kit.faults.kernel_catalogue import KERNEL_FAULTS, must_see
from kit.profile import load_profiles

PROMISED = {
    "kernel-mask-off-by-one",
    "kernel-wrong-group",
    "kernel-empty-split",
    "kernel-workspace-unwritten",
    "kernel-cap-dropped",
    "kernel-scale-one-over-size",
    "kernel-window-one-short",
    "kernel-pages-16-bits",
    "kernel-last-block-dropped",
    "kernel-one-head-scaled",
}


@pytest.mark.parametrize("profile", ["cpu", "H200-1gpu", "MI355X-4gpu"])
def test_every_fault_has_a_case_that_must_see_it(profile: str) -> None:
    specs = [
        case.spec
        for _, case in kernels.cases(load_profiles()[profile])
        if case.id.startswith("kernels/triton-") and isinstance(case.spec, Attention)
    ]
    assert {fault.name for fault in KERNEL_FAULTS} >= PROMISED
    assert {name for name in PROMISED if not any(must_see(name, spec) for spec in specs)} == set()
