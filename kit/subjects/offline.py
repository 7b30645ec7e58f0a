"""Compilers and an interpreter as a subject: kernels of SGLang without the hardware that they are for."""

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kit.checks.outcome import CheckResult
from kit.errors import EnvironmentFault
from kit.offline.asked import Asked, OfflineSpec
from kit.offline.pool import Pool
from kit.plan import Case, InjectedFault, OfflineSession
from kit.subjects.device import device_facts, versions
from kit.subjects.workspace import Workspace

ITEM_SECONDS = 540.0
"""Time limit of one kernel; the slowest took 134 s on two busy processors (Wave's decode for as many KV heads as query heads)."""
_PACKAGES = ("wave-lang", "iree-base-compiler", "triton", "torch", "sglang", "numpy", "ml-dtypes", "pyelftools")


@dataclass(frozen=True)
class OfflineSubject:
    """Attributes: facts: versions of compilers and of SGLang; the machine's own architecture. faults: deliberate ones."""

    pool: Pool[Asked, CheckResult]
    facts: dict[str, str]
    faults: tuple[InjectedFault, ...] = ()

    def expect(self, cases: Iterable[Case]) -> None:
        """Start on these, side by side. Those about one kernel share a process, so that it is emitted once for each call."""
        groups: dict[Hashable, dict[OfflineSpec, list[Asked]]] = {}
        for case in cases:
            if isinstance(case.spec, OfflineSpec):
                asked = Asked(case.spec, (*self.faults, *case.faults))
                groups.setdefault(asked.kernel, {}).setdefault(case.spec, []).append(asked)
        for calls in groups.values():
            self.pool.give(dict.fromkeys(asked for call in calls.values() for asked in call))

    def answer(self, spec: OfflineSpec) -> CheckResult:
        """The measurements of one case.

        Raises:
            JobDied, JobTimeout: its process gave no answer. NotApplicable: the library cannot be asked this.
            UsageFault: a fault found no place to act.
        """
        asked = Asked(spec, self.faults)
        if not self.pool.has(asked):
            self.pool.give([asked])
        return self.pool.answer(asked)


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
    pool: Pool[Asked, CheckResult] = Pool(answers, workspace.scratch, ITEM_SECONDS)
    try:
        yield OfflineSubject(pool, facts, workspace.faults)
    finally:
        pool.close()
