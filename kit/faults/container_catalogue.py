"""The faults of containers: what somebody, the engine or the kernel does to the one that a run lives in. Data only.

`kit.faults.containers` provokes them through the engine's API around the subject that computes nothing; `kit.selftest.launches` judges.
"""

from dataclasses import dataclass
from typing import Final, Literal

from kit.errors import ExitCode
from kit.faults.kind import FaultKind

Act = Literal["pass", "hang", "memory"]
Told = Literal["passed", "crashed", "timeout", "missing", "environment"]


@dataclass(frozen=True)
class ContainerFault:
    """What a launch must say of a fault; anything else means that it was mistaken for something else.

    A launch has two sessions. The first one passes a case, is then in the one under which the fault acts, and has another to pass.

    Attributes:
        told: status of the case before, of the one in flight, of the one after, and of the second session's.
        code: the exit code that the run must have.
        words: what the reason of the case in flight must say.
        act: what the null subject does in the case in flight; ``memory`` is the fault itself.
        run_seconds: time limit of the run.
    """

    told: tuple[Told, Told, Told, Told]
    code: ExitCode
    words: str
    act: Act = "hang"
    run_seconds: float = 120.0


_CRASHED: Final = ("passed", "crashed", "missing", "missing")

LAUNCHES: Final[dict[str, ContainerFault]] = {
    "container-killed": ContainerFault(_CRASHED, ExitCode.INCOMPLETE, "SIGKILL"),
    "container-stopped": ContainerFault(_CRASHED, ExitCode.INCOMPLETE, "SIGTERM"),
    "container-removed": ContainerFault(_CRASHED, ExitCode.INCOMPLETE, "removed by someone else"),
    "container-paused": ContainerFault(
        ("passed", "timeout", "missing", "missing"), ExitCode.INCOMPLETE, "time limit of 25 s", run_seconds=25.0
    ),
    "container-out-of-memory": ContainerFault(
        ("passed", "environment", "environment", "passed"), ExitCode.ENVIRONMENT, "out of memory", "memory"
    ),
    "container-worker-killed": ContainerFault(_CRASHED, ExitCode.INCOMPLETE, "SIGKILL"),
    "container-session-killed": ContainerFault(
        ("passed", "crashed", "missing", "passed"), ExitCode.INCOMPLETE, "SIGKILL"
    ),
    "container-name-taken": ContainerFault(
        ("environment",) * 4, ExitCode.ENVIRONMENT, "the engine refused the container", "pass"
    ),
}

FAULT_FREE: Final = ContainerFault(("passed",) * 4, ExitCode.CONFORMS, "", "pass")
"""A launch to which nothing is done."""


def _fault(name: str, effect: str, report: str | None = None) -> FaultKind:
    return FaultKind(name, effect, "container", "containers", report)


CONTAINER_FAULTS: Final[tuple[FaultKind, ...]] = (
    _fault("container-killed", "the engine kills the container in the middle of a case"),
    _fault("container-stopped", "the container's first process gets SIGTERM in the middle of a case"),
    _fault(
        "container-removed",
        "the container is removed by force in the middle of a case",
        "sgl-project/sglang#24586",
    ),
    _fault("container-paused", "the container is frozen in the middle of a case and never goes on"),
    _fault("container-out-of-memory", "the kernel kills a session that takes all the container's memory"),
    _fault(
        "container-worker-killed",
        "the worker inside is killed in the middle of a case, its sessions are left without it",
        "sgl-project/sglang#23627",
    ),
    _fault(
        "container-session-killed",
        "a session's process inside is killed from outside in the middle of a case",
        "pytest-dev/pytest-forked#27",
    ),
    _fault("container-name-taken", "the engine refuses the container: another one has its name", "moby/moby#49824"),
)
