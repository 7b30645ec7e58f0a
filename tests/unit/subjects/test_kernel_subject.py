import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from kit.errors import EnvironmentFault
from kit.plan import KernelLibrary, KernelSession
from kit.subjects.device import device_facts, processor_name, versions
from kit.subjects.kernels.subject import open_kernels
from kit.subjects.workspace import Workspace


def test_an_interpreter_is_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(EnvironmentFault, match="TRITON_INTERPRET is set"):
        open_kernels(KernelSession(library="triton", interpreted=False), {}, Workspace(tmp_path, tmp_path))


def test_facts_of_a_processor(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Processor @ 3 GHz\nmodel name\t: Another\n")
    assert processor_name(tmp_path / "cpuinfo") == "A Processor @ 3 GHz"
    assert processor_name(tmp_path / "missing") == device_facts("cpu")["architecture"]


def test_versions_of_what_is_not_installed_are_left_out() -> None:
    assert set(versions(["numpy", "no-such-package-here"])) == {"numpy"}


@pytest.mark.parametrize("library", get_args(KernelLibrary))
def test_a_library_that_does_not_import_is_named_before_any_case(
    library: KernelLibrary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from kit.subjects.kernels import subject

    def absent(*_: object) -> None:
        raise ImportError("Can not import it. Please check your installation.")

    monkeypatch.setattr(subject, "_open", absent)
    monkeypatch.setitem(sys.modules, "kit.subjects.kernels.lora", SimpleNamespace(open_lora=absent))
    monkeypatch.setattr(subject, "device_facts", lambda device: {})
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    session = KernelSession(library=library, interpreted=True)
    with pytest.raises(EnvironmentFault, match=f"kernels of {library}, which are not installed .Can not import it"):
        open_kernels(session, {}, Workspace(tmp_path, tmp_path))


def test_flash_attention_imports_its_kernels_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    from kit.subjects.kernels import opening

    def late(**_: object) -> None:
        raise ImportError("Can not import FA3 in sgl_kernel.")

    functions = SimpleNamespace(flash_attn_with_kvcache=late)
    importlib.import_module("triton.backends")  # it finds its own by import_module
    monkeypatch.setattr(opening.importlib, "import_module", lambda name: functions)
    with pytest.raises(EnvironmentFault, match=r"kernels of fa3, .* .Can not import FA3"), opening.installed("fa3"):
        opening.open_flash_attention(3, "cpu")
    functions.flash_attn_with_kvcache = lambda **_: 1 / 0
    assert opening.open_flash_attention(3, "cpu").version == 3
