"""Code objects of a small Triton kernel, compiled without a driver, and how their resources are read."""

import os
from pathlib import Path

import pytest

from kit.errors import UsageFault
from kit.offline.architectures import ARCHITECTURES, find_architecture
from kit.offline.code_object import CodeObjectFault, Resources, amd_resources

pytestmark = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"), reason="nothing is compiled")

KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def doubled(source, target, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    held = tl.load(source + place, mask=place < count)
    tl.store(target + place, held * 2, mask=place < count)

def launch():
    doubled[(1,)](torch.zeros(256), torch.zeros(256), 256, BLOCK=256)
"""


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Resources]:
    """Of one kernel, on every architecture."""
    import importlib.util

    from kit.offline.triton import diverted

    folder = tmp_path_factory.mktemp("kernel")
    (folder / "doubled.py").write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("kit_test_doubled", folder / "doubled.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = {}
    for name, architecture in ARCHITECTURES.items():
        scratch = folder / name
        scratch.mkdir()
        with diverted(architecture, (module,), scratch) as kernels:
            module.launch()
        (found[name],) = kernels
    return found


def test_a_kernel_without_sums_takes_few_registers_and_no_memory(resources: dict[str, Resources]) -> None:
    assert set(resources) == {"gfx942", "gfx950", "sm_90", "sm_100"}
    for found in resources.values():
        assert "doubled" in found.kernel
        assert 0 < found.vector_registers <= 32
        assert (found.local_bytes, found.scratch_bytes) == (0, 0)


def test_amd_tells_waves_and_spills(resources: dict[str, Resources]) -> None:
    for name in ("gfx942", "gfx950"):
        assert resources[name].threads == 256
        assert (resources[name].vector_spills, resources[name].scalar_spills) == (0, 0)
        assert resources[name].scalar_registers is not None


def test_what_is_no_code_object_is_told_in_one_line() -> None:
    for code in (b"", b"\x7fELF", b"no object at all" * 100):
        with pytest.raises(CodeObjectFault, match="no AMD code object"):
            amd_resources(code)


def test_published_limits() -> None:
    assert ARCHITECTURES["gfx942"].local_bytes == 65_536
    assert ARCHITECTURES["gfx950"].local_bytes == 163_840
    assert {ARCHITECTURES[name].local_bytes for name in ("sm_90", "sm_100")} == {232_448}
    assert {a.vector_registers for a in ARCHITECTURES.values()} == {512, 255}
    with pytest.raises(UsageFault, match="gfx951"):
        find_architecture("gfx951")


def test_an_open_folder_is_needed_only_for_nvidia(tmp_path: Path) -> None:
    """AMD's metadata lies in the object; NVIDIA's is read by the vendor's own tool."""
    from kit.offline.code_object import nvidia_resources

    with pytest.raises(CodeObjectFault, match="cuobjdump reads no kernel"):
        nvidia_resources(b"no cubin", Path("/bin/false"), tmp_path, 0)
