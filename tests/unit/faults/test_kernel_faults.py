"""Faults of kernels: every text that one replaces stands in the installed SGLang, and batches that hide a fault need not see it."""

import importlib.metadata
from pathlib import Path

import pytest

from kit.attention_spec import Extend, GroupedDecode, Prefill
from kit.faults.catalogue import FAULTS, expected_red, parse_fault
from kit.faults.kernel_catalogue import KERNEL_FAULTS, must_see
from kit.faults.kernels import ARGUMENTS, SOURCES
from kit.faults.lora_kernel_catalogue import LORA_KERNEL_FAULTS, lora_kernel_must_see
from kit.lora_kernel_spec import LoraKernel
from kit.plan import Case

SMALL = {"query_heads": 4, "kv_heads": 2, "head_dim": 16, "value_dim": 16}
BATCH = {"max_rank": 64, "outputs": (32,), "inputs": 16, "op": "expand"}


def installed(module: str) -> str:
    """The source of a kernel module, without importing SGLang."""
    try:
        files = importlib.metadata.files("sglang") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("SGLang is not installed")
    (found,) = [f for f in files if f.match(f"kernels/ops/attention/{module}.py") or f.match(f"ops/gemm/{module}.py")]
    return Path(str(found.locate())).read_text()


@pytest.mark.parametrize("fault", sorted(SOURCES))
def test_every_text_that_a_fault_replaces_stands_in_the_installed_sglang(fault: str) -> None:
    for change in SOURCES[fault]:
        assert change.text in installed(change.module), change.module
        assert change.instead != change.text


def test_every_fault_of_triton_kernels_acts_on_a_source_or_on_arguments() -> None:
    kinds = (*KERNEL_FAULTS, *LORA_KERNEL_FAULTS)
    assert {kind.name for kind in kinds} == SOURCES.keys() | ARGUMENTS.keys()
    assert all(FAULTS[kind.name] is kind for kind in kinds)


@pytest.mark.parametrize(
    ("fault", "spec", "must"),
    [
        ("kernel-head-dim-cut", Prefill(**(SMALL | {"head_dim": 96}), lengths=(5,)), True),
        ("kernel-head-dim-cut", Prefill(**(SMALL | {"head_dim": 64}), lengths=(5,)), False),
        ("kernel-split-weight-without-sum", GroupedDecode(**SMALL, lengths=(40,)), True),
        ("kernel-split-weight-without-sum", GroupedDecode(**SMALL, lengths=(32,)), False),
        ("kernel-merge-not-rescaled", GroupedDecode(**SMALL, lengths=(64, 64, 64, 70)), True),  # 32 and 32
        ("kernel-merge-not-rescaled", GroupedDecode(**SMALL, lengths=(40, 40, 40, 40)), False),  # 32 and 8
        ("kernel-merge-not-rescaled", GroupedDecode(**SMALL, lengths=(64,)), False),  # of 4 heads, none need be larger
        ("kernel-split-weight-without-sum", GroupedDecode(**SMALL, lengths=(40,), num_kv_splits=(1,)), False),
        ("kernel-split-weight-without-sum", GroupedDecode(**SMALL, lengths=(40,), content="equal"), False),
        ("kernel-offsets-32-bits", GroupedDecode(**SMALL, lengths=(5,), first_slot=2**32 // 32), True),
        ("kernel-offsets-32-bits", GroupedDecode(**SMALL, lengths=(5,), first_slot=2**31 // 32), False),
        ("kernel-pages-contiguous", Extend(**SMALL, prefixes=(9,), lengths=(2,)), True),
        ("kernel-pages-contiguous", Extend(**SMALL, prefixes=(9,), lengths=(2,), pages="ascending"), False),
        ("kernel-window-dropped", Extend(**SMALL, prefixes=(9,), lengths=(4,), content="revealing", window=6), True),
        ("kernel-window-dropped", GroupedDecode(**SMALL, lengths=(20,), content="revealing", window=6), False),
        ("lora-base-adapted", GroupedDecode(**SMALL, lengths=(5,)), False),
    ],
)
def test_only_attention_that_cannot_hide_a_fault_must_see_it(
    fault: str, spec: GroupedDecode | Extend | Prefill, must: bool
) -> None:
    assert must_see(fault, spec) is must
    assert expected_red((parse_fault(fault),), Case(id="kernels/triton-decode/x", session="s", spec=spec)) is must


@pytest.mark.parametrize(
    ("fault", "ranks", "scalings", "rows", "must"),
    [
        ("lora-scaling-of-first", (8, 16), (1.5, 0.5), (1, 1), True),
        ("lora-scaling-of-first", (8, 16), (1.5, 1.5), (1, 1), False),
        ("lora-scaling-of-first", (8, 16), (1.5, 0.5), (1, 0), False),
        ("lora-rank-rounded-down", (16, 24), (1.0, 1.0), (1, 1), True),
        ("lora-rank-rounded-down", (16, 32), (1.0, 1.0), (1, 1), False),
        ("lora-base-adapted", (16, 0), (1.0, 1.0), (1, 1), True),
        ("lora-base-adapted", (16, 0), (1.0, 1.0), (1, 0), False),
        ("lora-long-rows-nan", (8, 16), (1.0, 1.0), (15, 16), True),
        ("lora-long-rows-nan", (8, 0), (1.0, 1.0), (15, 16), False),
        ("lora-slices-alike", (8, 16), (1.0, 1.0), (1, 1), False),
        ("kernel-wrong-group", (8, 16), (1.0, 1.0), (1, 1), False),
    ],
)
def test_only_batches_that_cannot_hide_a_fault_must_see_it(
    fault: str, ranks: tuple[int, ...], scalings: tuple[float, ...], rows: tuple[int, ...], must: bool
) -> None:
    spec = LoraKernel(ranks=ranks, scalings=scalings, rows=rows, adapters=(0, 1), **BATCH)
    assert lora_kernel_must_see(fault, spec) is must
    case = Case(id="kernels/lora-triton-expand/x", session="kernels-lora-triton", spec=spec)
    assert expected_red((parse_fault(fault),), case) is must
