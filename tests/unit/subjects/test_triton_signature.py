from pathlib import Path

import pytest

from kit.errors import EnvironmentFault
from kit.plan import KernelSession
from kit.subjects.device import device_facts, processor_name, versions
from kit.subjects.triton_attention import open_triton, unit_scales


def old(q, k, v, o, indptr, indices, logits, lse, splits, max_splits, sm_scale, logit_cap=0.0): ...


def new(q, k, v, o, indptr, indices, logits, lse, splits, max_splits, sm_scale_withk, v_scale, logit_cap=0.0): ...


@pytest.mark.parametrize(("kernel", "scales"), [(old, []), (new, [1.0])])
def test_the_scale_of_values_is_passed_where_the_signature_has_it(kernel, scales: list[float]) -> None:
    assert unit_scales(kernel) == scales


def test_an_interpreter_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(EnvironmentFault, match="TRITON_INTERPRET is set"):
        open_triton(KernelSession(library="triton", dtype="float16", interpreted=False), {})


def test_facts_of_a_processor(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Processor @ 3 GHz\nmodel name\t: Another\n")
    assert processor_name(tmp_path / "cpuinfo") == "A Processor @ 3 GHz"
    assert processor_name(tmp_path / "missing") == device_facts("cpu")["architecture"]


def test_versions_of_what_is_not_installed_are_left_out() -> None:
    assert set(versions(["numpy", "no-such-package-here"])) == {"numpy"}
