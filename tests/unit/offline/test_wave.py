"""Wave kernels of SGLang: emitted for a GPU, compiled, executed on the CPU; and the same with faults put into their MLIR."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit.faults.catalogue import parse_fault
from kit.faults.wave_catalogue import WAVE_FAULTS, wave_must_see
from kit.measurement import Measurement
from kit.offline_spec import ExecuteMlir
from tests.unit.offline.wave_calls import CALLS

PROGRAM = """
import json, sys
from pathlib import Path
from kit.standins import activate
activate(("sgl_kernel", "torchvision", "pinned_memory"))
from kit.faults.catalogue import parse_fault
from kit.offline.asked import Asked
from kit.offline.work import answers
from kit.offline_spec import CompileKernel
from tests.unit.offline.wave_calls import CALLS

wanted = json.loads(sys.argv[2])
asked = [Asked(CALLS[call], tuple(map(parse_fault, faults))) for call, *faults in wanted]
first = CALLS[wanted[0][0]]
asked.append(Asked(CompileKernel(library="wave", architecture=first.architecture, attention=first.attention)))
told = []
for answer in answers(tuple(asked)):
    if isinstance(answer, Exception):
        raise answer
    told.append([m.model_dump(mode="json") for m in answer.measurements])
Path(sys.argv[1], "told.json").write_text(json.dumps(told))
"""
Told = dict[tuple[str, ...], dict[str, Measurement]]
DECODE, OTHERS = ("decode-100", "decode-5"), ("extend", "prefill")


def must_be_red(call: str) -> list[str]:
    """The faults that a call must see, as typed."""
    return [kind.as_reported for kind in WAVE_FAULTS if wave_must_see(kind.name, CALLS[call])]


def ask(folder: Path, calls: tuple[str, ...]) -> Told:
    """Measurements by name, of every call as it is and under each fault that it must see; ``compiled`` of the first one's code object.

    SGLang lives in a process of its own.
    """
    wanted = [[call, *fault] for call in calls for fault in ([], *([name] for name in must_be_red(call)))]
    command = [sys.executable, "-c", PROGRAM, str(folder), json.dumps(wanted)]
    subprocess.run(command, check=True, timeout=600, cwd=Path(__file__).parents[3])
    found = json.loads((folder / "told.json").read_text())
    keys = [*map(tuple, wanted), ("compiled",)]
    return {
        key: {item["name"]: Measurement.model_validate(item) for item in items}
        for key, items in zip(keys, found, strict=True)
    }


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return ask(tmp_path_factory.mktemp("wave"), DECODE)


def red(measurements: dict[str, Measurement]) -> set[str]:
    return {name for name, measurement in measurements.items() if not measurement.within}


def test_the_kernel_is_right_and_stays_in_its_buffers(told: Told) -> None:
    whole = told["decode-100",]
    assert all(measurement.within for measurement in whole.values())
    assert whole["out_of_bounds_reads"].judged and whole["out_of_bounds_writes"].judged
    # 2 requests × 8 splits and 2 × 16 in phase 1, twice: once with each poison.
    assert whole["workgroups"].value == 2 * (2 * 8 + 2 * 16)
    assert whole["matrix_operations"].value > 0
    assert whole["rms_error"].value < 2e-4


def test_its_code_object_keeps_the_limits(told: Told) -> None:
    compiled = told["compiled",]
    assert all(measurement.within for measurement in compiled.values())
    assert compiled["local_bytes"].value == 4736
    assert compiled["local_bytes"].limit == 163_840
    assert 0 < compiled["vector_registers"].value < 256


@pytest.mark.parametrize(("call", "fault"), [(call, fault) for call in DECODE for fault in must_be_red(call)])
def test_a_fault_in_the_mlir_of_decode_is_red(told: Told, call: str, fault: str) -> None:
    assert red(told[call, fault])


@pytest.mark.parametrize(
    ("fault", "measurement"),
    [
        ("wave-mask-off-by-one", "head_max_abs_error"),
        ("wave-scores-scaled=1.01", "head_rms_error"),
        ("wave-guard-inside", "out_of_bounds_reads"),
    ],
)
def test_a_fault_is_seen_by_what_is_about_it(told: Told, fault: str, measurement: str) -> None:
    assert measurement in red(told["decode-100", fault])


@pytest.mark.nightly
def test_a_fault_in_the_mlir_of_extend_and_prefill_is_red(tmp_path: Path) -> None:
    told = ask(tmp_path, OTHERS)
    assert not red(told["extend",]) and not red(told["prefill",])
    green = [(call, fault) for call in OTHERS for fault in must_be_red(call) if not red(told[call, fault])]
    assert green == []
    assert len(told) > 2 * 8


def test_every_fault_of_wave_must_be_seen_by_some_call() -> None:
    seen = {parse_fault(fault).name for call in CALLS for fault in must_be_red(call)}
    assert seen == {kind.name for kind in WAVE_FAULTS}
    assert all(isinstance(spec, ExecuteMlir) for spec in CALLS.values())
