"""Compilers and an interpreter as a subject: kernels of SGLang without the hardware that they are for."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from kit.check_spec import CheckSpec
from kit.checks.outcome import CheckResult
from kit.errors import EnvironmentFault
from kit.offline.pool import Pool
from kit.offline_spec import CompileKernel, ExecuteMlir
from kit.plan import OfflineSession
from kit.subjects.device import device_facts, versions
from kit.subjects.workspace import Workspace

OfflineSpec = CompileKernel | ExecuteMlir

ITEM_SECONDS = 540.0
"""Time limit of one kernel; the slowest took 134 s on two busy processors (Wave's decode for as many KV heads as query heads)."""
_PACKAGES = ("wave-lang", "iree-base-compiler", "triton", "torch", "sglang", "numpy", "ml-dtypes", "pyelftools")


@dataclass(frozen=True)
class OfflineSubject:
    """Attributes: facts: versions of compilers and of SGLang; the machine's own architecture."""

    pool: Pool[OfflineSpec, CheckResult]
    facts: dict[str, str]

    def expect(self, specs: Iterable[CheckSpec]) -> None:
        """Start on these, side by side. Neighbours about one kernel share a process, so that it is emitted once."""
        known = [spec for spec in specs if isinstance(spec, OfflineSpec)]
        for _, group in groupby(known, key=kernel_of):
            self.pool.give(group)

    def answer(self, spec: OfflineSpec) -> CheckResult:
        """The measurements of one case.

        Raises:
            JobDied, JobTimeout: its process gave no answer. NotApplicable: the library cannot be asked this.
        """
        return self.pool.answer(spec)


def kernel_of(spec: OfflineSpec) -> tuple[object, ...]:
    """What decides the code of a kernel beside the lengths: cases that agree in it can share a process."""
    library = spec.library if isinstance(spec, CompileKernel) else "wave"
    sizes = attrgetter("check", "query_heads", "kv_heads", "head_dim", "value_dim", "dtype", "logit_cap")
    return (library, spec.architecture, *sizes(spec.attention), len(spec.attention.lengths))


@contextmanager
def open_offline(session: OfflineSession, workspace: Workspace, stand_ins: dict[str, str]) -> Iterator[OfflineSubject]:
    """SGLang's launchers and the compilers, loaded once; every job is a fork of this process.

    Raises:
        EnvironmentFault: Wave, Triton or SGLang is not installed.
    """
    try:
        from kit.offline.work import answers
    except ImportError as error:
        raise EnvironmentFault(
            f"{error.name or error} does not import, which the checks without hardware need",
            "use the image 'cpu', or install images/cpu.lock",
        ) from None
    facts = device_facts("cpu") | versions(_PACKAGES) | stand_ins
    facts |= {"compiles_for": " ".join(session.architectures), "peer": "torch, same dtype, on the CPU"}
    pool: Pool[OfflineSpec, CheckResult] = Pool(answers, workspace.scratch, ITEM_SECONDS)
    try:
        yield OfflineSubject(pool, facts)
    finally:
        pool.close()
