from pathlib import Path

import pytest

from kit.errors import EnvironmentFault
from kit.plan import KernelSession
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


@pytest.mark.parametrize("library", ["wave", "fa3"])
def test_a_library_that_is_not_installed_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kit.subjects.kernels import opening

    def absent(name: str) -> None:
        raise ModuleNotFoundError("No module named 'wave_lang'")

    monkeypatch.setattr(opening.importlib, "import_module", absent)
    with pytest.raises(EnvironmentFault, match=f"kernels of {library}, which are not installed"):
        opening.open_sglang_wave() if library == "wave" else opening.open_flash_attention(3)
