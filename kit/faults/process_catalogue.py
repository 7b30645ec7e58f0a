"""The faults of processes: how a session ends, or what it leaves. Data only.

They act on the subject that computes nothing (`kit.subjects.null`), or on the scheduler of a real engine (`kit.faults.engine`).
"""

from typing import Final, Literal, NamedTuple

from kit.faults.kind import FaultKind

Act = Literal["raise", "kill", "exit", "hang", "nan", "noise"]


class ProcessFault(NamedTuple):
    """What the subject does (None: abort after its last answer), and the status that its case must have."""

    act: Act | None
    status: Literal["failed", "crashed", "timeout"]


ACTS: Final[dict[str, ProcessFault]] = {
    "process-killed": ProcessFault("kill", "crashed"),
    "process-left": ProcessFault("exit", "crashed"),
    "process-hangs": ProcessFault("hang", "timeout"),
    "process-raises": ProcessFault("raise", "crashed"),
    "process-answers-nan": ProcessFault("nan", "failed"),
    "process-aborts-at-end": ProcessFault(None, "crashed"),
}
"""By fault; any other status than the one here means that the fault was mistaken for something else."""

SIGNALS: Final[dict[str, Literal["SIGKILL", "SIGSTOP"]]] = {"engine-killed": "SIGKILL", "engine-stopped": "SIGSTOP"}
"""By fault, what SGLang's scheduler sends itself when it is to compute a batch."""

TELLING: Final[dict[str, Literal["failed", "crashed", "timeout"]]] = {
    **{name: fault.status for name, fault in ACTS.items()},
    "engine-killed": "crashed",
    "engine-stopped": "timeout",
}
"""By fault of processes, the status that its case must have."""


def _fault(name: str, effect: str, report: str | None = None) -> FaultKind:
    return FaultKind(name, effect, "process", "processes", report)


PROCESS_FAULTS: Final[tuple[FaultKind, ...]] = (
    _fault("process-killed", "the session's process is killed in the middle of a case", "pytest-dev/pytest-forked#27"),
    _fault("process-left", "the session's process ends with exit code 0 in the middle of a case"),
    _fault(
        "process-hangs",
        "the session's process never answers, and takes no notice of SIGTERM",
        "sgl-project/sglang#25864",
    ),
    _fault("process-raises", "the check fails to run", "pytest-dev/pytest#7657"),
    _fault("process-answers-nan", "the session's process measures NaN", "vllm-project/vllm#39148"),
    _fault("process-aborts-at-end", "the session's process aborts after its last answer"),
    _fault("engine-killed", "the engine's scheduler is killed in the middle of a request", "sgl-project/sglang#25864"),
    _fault("engine-stopped", "the engine's scheduler stops in the middle of a request and never goes on"),
)
