"""What is green and what is red, in both modes, as one table."""

from collections.abc import Callable
from datetime import date

import pytest

from kit.events import CaseFailedToRun, CaseSkipped, CaseStarted, RuntimeStarted, Trouble
from kit.results.model import Mode, RunResult
from tests.unit.results.streams import (
    GOOD_END,
    KERNEL,
    LORA,
    MIXED,
    case_events,
    death,
    judged,
    plan,
    session_events,
    waiver,
    worker,
)

ALL = {"s": [LORA, MIXED, KERNEL]}
IN_IMAGE = RuntimeStarted(runtime="docker", facts={})
LOCAL = RuntimeStarted(runtime="local", facts={})


def run(mode: Mode, kernel: list[object], **settings: object) -> RunResult:
    """Two green cases, and one that tells `kernel`."""
    host = [settings.pop("runtime", IN_IMAGE), GOOD_END]
    planned = settings.pop("planned", plan(ALL))
    end = settings.pop("end", None)
    events = worker(session_events("s", case_events("s", LORA, 0.1), case_events("s", MIXED, 0.1), kernel, end=end))  # type: ignore[arg-type]
    return judged(planned, events, host=host, mode=mode, **settings)  # type: ignore[arg-type]


def case(*values: float) -> list[object]:
    return list(case_events("s", KERNEL, *values))


STARTED = CaseStarted(session="s", case=KERNEL)


def trouble(kind: Trouble) -> list[object]:
    return [STARTED, CaseFailedToRun(session="s", case=KERNEL, seconds=1, trouble=kind, reason="it says why")]


SKIPPED = [STARTED, CaseSkipped(session="s", case=KERNEL, reason="needs two GPUs")]
EXPIRED = {"today": date(2027, 2, 1)}
RERUN = plan(ALL).model_copy(update={"rerun_of": "earlier"})
DUPLICATE = plan({"s": [LORA, MIXED, KERNEL, KERNEL]})
NO_KERNELS = plan({"s": [LORA, MIXED]})

# What happened, then the exit codes in ci and in qualify.
TABLE: dict[str, tuple[Callable[[Mode], RunResult], int, int]] = {
    "all within limits": (lambda m: run(m, case(0.1)), 0, 0),
    "one outside": (lambda m: run(m, case(2.0)), 1, 1),
    "one NaN": (lambda m: run(m, case(float("nan"))), 1, 1),
    "nothing judged": (lambda m: run(m, case()), 5, 5),
    "crashed": (lambda m: run(m, trouble(Trouble.CRASHED)), 5, 5),
    "died in the case": (lambda m: run(m, [STARTED], end=death("s")), 5, 5),
    "died after the last case": (lambda m: run(m, case(0.1), end=death("s")), 5, 5),
    "timeout": (lambda m: run(m, trouble(Trouble.TIMEOUT)), 5, 5),
    "environment": (lambda m: run(m, trouble(Trouble.ENVIRONMENT)), 3, 3),
    "missing": (lambda m: run(m, []), 5, 5),
    "started, never ended": (lambda m: run(m, [STARTED]), 5, 5),
    "reported twice": (lambda m: run(m, case(0.1) * 2), 1, 1),
    "reported twice, waived": (lambda m: run(m, case(0.1) * 2, waivers=[waiver()]), 1, 1),
    "duplicate id": (lambda m: run(m, case(0.1), planned=DUPLICATE), 1, 1),
    "no case": (lambda m: judged(plan({}), worker(), mode=m), 5, 5),
    "all skipped": (lambda m: judged(plan({"s": [KERNEL]}, {KERNEL: "no"}), worker(), mode=m), 5, 5),
    "skipped in a mandatory battery": (lambda m: run(m, SKIPPED), 0, 1),  # type: ignore[arg-type]
    "no case of a mandatory battery": (lambda m: run(m, [], planned=NO_KERNELS), 0, 1),
    "waived": (lambda m: run(m, case(2.0), waivers=[waiver()]), 0, 0),
    "waived, and it passed": (lambda m: run(m, case(0.1), waivers=[waiver()]), 0, 1),
    "waiver expired, failed": (lambda m: run(m, case(2.0), waivers=[waiver()], **EXPIRED), 1, 1),
    "waiver expired, passed": (lambda m: run(m, case(0.1), waivers=[waiver()], **EXPIRED), 0, 1),
    "a fault injected": (lambda m: run(m, case(0.1), planned=plan(ALL, faults=("adapter-scaling",))), 0, 1),
    "a rerun": (lambda m: run(m, case(0.1), planned=RERUN), 0, 1),
    "not in the image": (lambda m: run(m, case(0.1), runtime=LOCAL), 0, 1),
    "damaged lines": (lambda m: run(m, case(0.1), damaged=1), 5, 5),
}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("what", list(TABLE))
def test_exit_codes(what: str, mode: Mode) -> None:
    make, ci, qualify = TABLE[what]
    result = make(mode)
    assert result.exit_code == (ci if mode is Mode.CI else qualify)
    if result.exit_code:
        tells = [case.reason for case in result.cases if case.reason] + [problem.text for problem in result.problems]
        assert tells, "a red run says why"


def test_a_rerun_says_that_it_is_one() -> None:
    assert any("earlier" in warning for warning in run(Mode.CI, case(0.1), planned=RERUN).warnings)
