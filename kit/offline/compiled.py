"""Kernels of one attention call, compiled for an architecture that this machine lacks, within what it allows."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from kit.attention_spec import AttentionSpec
from kit.checks.outcome import CheckResult, NotApplicable
from kit.measurement import Comparison, LimitSource, Measurement
from kit.offline.architectures import Architecture, find_architecture
from kit.offline.code_object import Resources
from kit.offline.mlir.kernel import Kernel
from kit.offline.triton import diverted
from kit.offline.wave import compile_emitted
from kit.offline.wave_library import WaveLaunchers
from kit.offline_spec import CompileKernel
from kit.oracles import limits
from kit.subjects.kernels.library import AttentionLibrary
from kit.subjects.kernels.opening import first_importable
from kit.subjects.kernels.sglang_triton import MODULES, SGLangTriton
from kit.subjects.workspace import Workspace
from kit.synthetic.attention import attention_inputs


def triton(spec: CompileKernel, folder: Path) -> CheckResult:
    """Through SGLang's Triton launchers. What stops the compiler is a measurement, not an error of the check.

    Raises:
        NotApplicable: SGLang's launchers cannot be asked this.
    """
    decode, extend, prefill = (first_importable(name, Workspace(folder, folder)) for name in MODULES)
    architecture = find_architecture(spec.architecture)
    failure = None
    with diverted(architecture, (decode, extend, prefill), folder) as found:
        try:
            _launch(SGLangTriton(decode, extend, prefill, "cpu", {}), spec.attention)
        except NotApplicable:
            raise
        except Exception as error:  # each of Triton's stages has classes of its own
            failure = f"{type(error).__name__}: {error}"
    return _judged(spec, architecture, found, [failure] if failure else [], [r.local_bytes for r in found])


def wave(spec: CompileKernel, launchers: WaveLaunchers, folder: Path) -> CheckResult:
    """Through SGLang's Wave launchers; LDS is also known where no code object came to be, from the MLIR.

    Raises:
        NotApplicable: SGLang's launchers cannot be asked this.
    """
    launchers.execute = False
    _launch(launchers, spec.attention)
    kernels = launchers.emitted.latest
    for place, kernel in enumerate(kernels):
        compile_emitted(kernel, folder / str(place))
    local = [Kernel(k.mlir).lds_bytes if k.resources is None else k.resources.local_bytes for k in kernels]
    failures = [f"{kernel.name}: {kernel.failure}" for kernel in kernels if kernel.failure]
    found = [kernel.resources for kernel in kernels if kernel.resources]
    return _judged(spec, find_architecture(spec.architecture), found, failures, local)


def _launch(library: AttentionLibrary, spec: AttentionSpec) -> None:
    if reason := library.refuses(spec):
        raise NotApplicable(reason)
    library.attend(spec, attention_inputs(spec), "nan")


def _judged(
    spec: CompileKernel,
    architecture: Architecture,
    found: Sequence[Resources],
    failures: Sequence[str],
    local_bytes: Sequence[int],
) -> CheckResult:
    measurements = [
        limits.exactly_none("not_compiled", len(failures) or int(not found), "kernels without a code object"),
        _allowed("local_bytes", max(local_bytes, default=0), architecture.local_bytes, "B", architecture.source),
    ]
    if found:
        measurements += _registers(spec, architecture, found)
    evidence: dict[str, JsonValue] = {"resources": [resource.model_dump(mode="json") for resource in found]}
    if failures:
        evidence["failures"] = [text[-2_000:] for text in failures]
    return CheckResult(tuple(measurements), evidence)


def _registers(spec: CompileKernel, architecture: Architecture, found: Sequence[Resources]) -> list[Measurement]:
    """Registers against the architecture, and spills against what is recorded."""
    budget = spec.budget
    vector = max(resource.vector_registers for resource in found)
    measurements = [
        _allowed("vector_registers", vector, architecture.vector_registers, "count", architecture.source),
        _recorded("scratch_bytes", max(r.scratch_bytes for r in found), budget.scratch_bytes, "B", budget.reason),
    ]
    if architecture.scalar_registers is not None:
        scalar = max(resource.scalar_registers or 0 for resource in found)
        measurements += [
            _allowed("scalar_registers", scalar, architecture.scalar_registers, "count", architecture.source),
            _recorded("vector_spills", _most(found, "vector_spills"), budget.vector_spills, "count", budget.reason),
            _recorded("scalar_spills", _most(found, "scalar_spills"), budget.scalar_spills, "count", budget.reason),
        ]
    return measurements


def _most(found: Sequence[Resources], name: str) -> int:
    return max(getattr(resource, name) or 0 for resource in found)


def _allowed(name: str, value: int, limit: int, unit: str, source: str) -> Measurement:
    return _at_most(name, value, limit, unit, LimitSource.ARCHITECTURE, source)


def _recorded(name: str, value: int, limit: int, unit: str, reason: str) -> Measurement:
    return _at_most(name, value, limit, unit, LimitSource.BUDGET, reason)


def _at_most(name: str, value: int, limit: int, unit: str, source: LimitSource, note: str) -> Measurement:
    return Measurement(
        name=name, value=value, unit=unit, comparison=Comparison.AT_MOST, limit=limit, source=source, note=note
    )
