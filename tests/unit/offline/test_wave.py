"""A Wave kernel of SGLang: emitted for a GPU, compiled, executed on the CPU; and the same with faults put into its MLIR."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit.measurement import Measurement

PROGRAM = """
import json, sys
from pathlib import Path
from kit.standins import activate
activate(("sgl_kernel", "torchvision", "pinned_memory"))
from kit.batteries.upstream_attention import MULTI_QUERY, decode
from kit.offline_spec import CompileKernel, ExecuteMlir
from kit.offline import compiled as compiling, executed, wave_library
from kit.offline.wave import diverted
from tests.unit.offline import faults

spec = ExecuteMlir(architecture="gfx950", attention=decode(MULTI_QUERY, 100, "float16")[1])
compiled = CompileKernel(library="wave", architecture="gfx950", attention=spec.attention)
with diverted("gfx950") as emitted:
    launchers = wave_library.WaveLaunchers(emitted)
    results = {"whole": executed.check(spec, launchers)}
    results["compiled"] = compiling.wave(compiled, launchers, Path(sys.argv[1]) / "objects")
    phase_0 = next(kernel for kernel in emitted.kernels.values() if kernel.name == "phase_0")
    right = phase_0.mlir
    for name, fault in faults.FAULTS.items():
        phase_0.mlir = fault(right)
        results[name] = executed.check(spec, launchers)
told = {name: [m.model_dump(mode="json") for m in result.measurements] for name, result in results.items()}
Path(sys.argv[1], "told.json").write_text(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Measurement]]:
    """Measurements by name, of the kernel as it is, of its code object, and of every fault. SGLang lives in a process of its own."""
    folder = tmp_path_factory.mktemp("wave")
    subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], check=True, timeout=600, cwd=Path(__file__).parents[3])
    found = json.loads((folder / "told.json").read_text())
    return {name: {item["name"]: Measurement.model_validate(item) for item in items} for name, items in found.items()}


def test_the_kernel_is_right_and_stays_in_its_buffers(told: dict[str, dict[str, Measurement]]) -> None:
    whole = told["whole"]
    assert all(measurement.within for measurement in whole.values())
    assert whole["out_of_bounds_reads"].judged and whole["out_of_bounds_writes"].judged
    # 2 requests × 8 splits and 2 × 16 in phase 1, twice: once with each poison.
    assert whole["workgroups"].value == 2 * (2 * 8 + 2 * 16)
    assert whole["matrix_operations"].value > 0
    assert whole["rms_error"].value < 2e-4


def test_its_code_object_keeps_the_limits(told: dict[str, dict[str, Measurement]]) -> None:
    compiled = told["compiled"]
    assert all(measurement.within for measurement in compiled.values())
    assert compiled["local_bytes"].value == 4736
    assert compiled["local_bytes"].limit == 163_840
    assert 0 < compiled["vector_registers"].value < 256


@pytest.mark.parametrize(
    ("fault", "measurement"),
    [
        ("mask-off-by-one", "head_max_abs_error"),
        ("scale-1.01", "head_rms_error"),
        ("unguarded", "out_of_bounds_reads"),
    ],
)
def test_a_fault_in_the_mlir_is_red(told: dict[str, dict[str, Measurement]], fault: str, measurement: str) -> None:
    assert not told[fault][measurement].within
