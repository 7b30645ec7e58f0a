"""Checks without hardware: which there are, under which profile, and that none of them qualifies anything."""

import pytest

from kit.attention_spec import Extend, GroupedDecode, Prefill
from kit.batteries.offline import cases
from kit.errors import UsageFault
from kit.host.planner import Selection, make_plan
from kit.host.run import Request, prepare
from kit.offline.budgets import budget_of, load_budgets
from kit.offline_profile import without_hardware
from kit.offline_spec import CompileKernel, ExecuteMlir
from kit.plan import KernelSession, OfflineSession
from kit.profile import find_profile
from tests.unit.batteries.test_batteries import UPSTREAM_LENGTHS, UPSTREAM_SHAPES


def specs(profile: str) -> list[CompileKernel | ExecuteMlir]:
    return [case.spec for _, case in cases(find_profile(profile))]


def sizes(spec: GroupedDecode | Extend | Prefill) -> tuple[int, ...]:
    return (len(spec.lengths), spec.query_heads, spec.kv_heads, spec.head_dim, spec.value_dim)


@pytest.mark.parametrize("profile", ["MI355X-4gpu", "MI300X-8gpu"])
def test_the_upstream_decode_matrix_is_executed_and_compiled(profile: str) -> None:
    found = specs(f"{profile}-offline")
    architecture = find_profile(profile).architecture
    assert {spec.architecture for spec in found} == {architecture}
    executed = [s.attention for s in found if isinstance(s, ExecuteMlir) and isinstance(s.attention, GroupedDecode)]
    assert {(sizes(a), a.lengths[0]) for a in executed} == {
        (shape, length) for shape in UPSTREAM_SHAPES if shape[0] == 2 for length in UPSTREAM_LENGTHS
    }
    for library in ("wave", "triton"):
        compiled = [s.attention for s in found if isinstance(s, CompileKernel) and s.library == library]
        assert {sizes(a) for a in compiled if isinstance(a, GroupedDecode)} == UPSTREAM_SHAPES
        assert {type(a) for a in compiled} == {GroupedDecode, Extend, Prefill}


def test_nvidia_has_no_wave() -> None:
    found = specs("B200-4gpu-offline")
    assert found and all(isinstance(spec, CompileKernel) and spec.library == "triton" for spec in found)
    assert {spec.architecture for spec in found} == {"sm_100"}


def test_the_cpu_profile_has_a_small_part_for_every_architecture() -> None:
    found = specs("cpu")
    assert {spec.architecture for spec in found} == {"gfx950", "gfx942", "sm_90", "sm_100"}
    assert {type(s.attention) for s in found if isinstance(s, ExecuteMlir)} == {GroupedDecode, Extend, Prefill}
    assert len(found) <= 24


def test_a_gpu_profile_plans_none_of_them() -> None:
    assert specs("MI355X-4gpu") == []


def test_the_profile_without_hardware_is_another_one() -> None:
    real, stand = find_profile("mi355x"), find_profile("mi355x-offline")
    assert stand == without_hardware(real, find_profile("cpu"))
    assert (stand.name, stand.gpus, stand.vendor, stand.image) == ("MI355X-4gpu-offline", 0, "cpu", "cpu")
    assert stand.architecture != real.architecture
    assert any("no qualification" in text for text in stand.does_not_prove)
    plan = make_plan(stand, Selection(), "x")
    assert {case.battery for case in plan.cases} == {"kernels"}
    kinds = [session.spec for session in plan.sessions]
    assert any(isinstance(spec, OfflineSession) for spec in kinds)
    assert all(spec.interpreted for spec in kinds if isinstance(spec, KernelSession))


def test_offline_checks_are_refused_where_they_mean_nothing() -> None:
    for request, word in (
        (Request("mi355x", offline=True, mode="qualify"), "qualify nothing"),
        (Request("mi355x-offline", mode="qualify"), "qualify nothing"),
        (Request("cpu", offline=True), "without a GPU itself"),
        (Request("xpu-1gpu", offline=True), "without its hardware"),
        (Request("mi35x-offline"), "mi35"),
    ):
        with pytest.raises(UsageFault, match=word):
            prepare(request)
    assert prepare(Request("mi355x", offline=True)).profile.name == "MI355X-4gpu-offline"


def test_every_budget_is_of_a_case_that_is_planned() -> None:
    planned = {
        case.id
        for profile in ("cpu", "MI355X-4gpu-offline", "MI300X-8gpu-offline", "H200-1gpu-offline", "B200-4gpu-offline")
        for _, case in cases(find_profile(profile))
    }
    recorded = load_budgets().budget
    assert {budget.case for budget in recorded} <= planned
    assert all(b.vector_spills or b.scalar_spills or b.scratch_bytes for b in recorded)
    assert budget_of("kernels/offline-wave-decode-compile/none").scratch_bytes == 0
