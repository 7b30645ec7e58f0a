"""A Wave kernel's MLIR, executed on the CPU: right against float64, and no read or write outside its buffers."""

from collections import Counter

from kit.checks import attention
from kit.checks.outcome import CheckResult
from kit.offline.wave_library import WaveLaunchers
from kit.offline_spec import ExecuteMlir
from kit.oracles import limits
from kit.subjects.kernels.subject import KernelSubject


def check(spec: ExecuteMlir, launchers: WaveLaunchers) -> CheckResult:
    """As on a device (`kit.checks.attention`), and what only an interpreter sees.

    Raises:
        NotApplicable: SGLang's Wave launchers cannot be asked this. MlirFault: the module does what cannot be followed.
    """
    launchers.execute, launchers.counts = True, Counter()
    result = attention.check(spec.attention, KernelSubject(launchers, "cpu", {}))
    counts = launchers.counts
    measurements = (
        *result.measurements,
        limits.exactly_none("out_of_bounds_reads", counts["out_of_bounds_reads"], "elements read outside their buffer"),
        limits.exactly_none("out_of_bounds_writes", counts["out_of_bounds_writes"], "elements written outside it"),
        limits.context("guarded_reads", counts["guarded_reads"], "count", "a buffer descriptor answers them with zero"),
        limits.context("workgroups", counts["workgroups"], "count"),
        limits.context("matrix_operations", counts["matrix_operations"], "count"),
    )
    return CheckResult(measurements, result.evidence)
