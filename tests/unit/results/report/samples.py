"""Results of every kind for tests of the report."""

import math
import random
from datetime import date

from kit.errors import ExitCode
from kit.events import Trouble
from kit.evidence import ErrorByPosition, LimitUseByHead
from kit.measurement import Comparison, LimitSource, Measurement
from kit.plan import InjectedFault
from kit.results.model import (
    CaseResult,
    Mode,
    Problem,
    ProfileFacts,
    RunResult,
    SessionResult,
    Status,
    exit_code_of,
)
from kit.waiver import Waiver

STARTED = 1_796_126_400.0  # 2026-12-01 12:00 UTC
PROFILE = ProfileFacts(
    name="cpu", title="No GPU", vendor="cpu", architecture="x86_64", gpus=0, image="cpu", mandatory=("kernels",)
)
WAIVER = Waiver(
    id="known-fault",
    case="kernels/*",
    architecture="x86_64",
    reason="a fault that is known and tracked",
    link="https://example.org/issues/1",
    opened=date(2026, 11, 30),
    expires=date(2027, 1, 31),
)
FAULT = InjectedFault(name="adapter-scaling", strength=1.1)


def measured(name: str, value: float, limit: float = 1.0, **fields: object) -> Measurement:
    base: dict[str, object] = {"unit": "nat", "comparison": Comparison.AT_MOST, "source": LimitSource.PEER}
    return Measurement.model_validate({"name": name, "value": value, "limit": limit, **base, **fields})


def case(name: str, status: Status = Status.PASSED, *measurements: Measurement, **fields: object) -> CaseResult:
    base: dict[str, object] = {
        "id": name,
        "battery": name.split("/")[0],
        "session": "s",
        "status": status,
        "measurements": measurements,
        "started": STARTED + 3,
        "seconds": 1.5,
    }
    return CaseResult.model_validate(base | fields)


def result(*cases: CaseResult, mode: Mode = Mode.CI, interrupted: bool = False, **fields: object) -> RunResult:
    problems = tuple(fields.pop("problems", ()))  # type: ignore[call-overload]
    base: dict[str, object] = {
        "kit_version": "1",
        "run_id": "20261201-120000-abcdef",
        "profile": PROFILE,
        "mode": mode,
        "runtime": "docker",
        "host": {"hostname": "lab-7", "revision": "abc"},
        "worker": {"torch": "2.13.0", "sglang": "0.5.19"},
        "image": {"definition": "cpu 1"},
        "cases": cases,
        "problems": problems,
        "sessions": (
            SessionResult(id="s", ended=True, ready_seconds=12.0, log="logs/s.log", facts={"device": "AMD EPYC"}),
        ),
        "started": STARTED,
        "finished": STARTED + 60,
        "interrupted": interrupted,
        "exit_code": exit_code_of(mode, cases, problems, interrupted),
    }
    return RunResult.model_validate(base | fields)


def by_position(factor: float) -> ErrorByPosition:
    draw = random.Random(3)
    peer = tuple(1e-6 * draw.uniform(0.2, 1.5) for _ in range(270))
    served = tuple(error * (factor if index >= 120 else 1.0) for index, error in enumerate(peer))
    return ErrorByPosition(
        unit="nat", window=1, starts=(0, 16, 48, 111, 175), served=served, peer=peer, limit=2 * max(peer)
    )


def by_head(broken: bool) -> LimitUseByHead:
    draw = random.Random(4)
    rows = [[draw.uniform(0.1, 0.9) for _ in range(128)] for _ in range(2)]
    if broken:
        rows[1][64:68] = [3.0, 14.0, math.nan, math.inf]
    return LimitUseByHead(window=1, use=tuple(tuple(row) for row in rows))


def green() -> RunResult:
    return result(
        case("lora-logprob/tiny/base", Status.PASSED, measured("max_abs_error", 1.7e-6, 4.5e-6)),
        case("lora-logprob/tiny/adapter-0", Status.PASSED, measured("max_abs_error", 2.1e-6, 4.9e-6)),
        case(
            "kernels/triton/shape-1",
            Status.PASSED,
            measured("head_max_abs_error", 1.0, 3.0, unit="1"),
            evidence={"limit_use": by_head(False).as_evidence()},
        ),
        does_not_prove=("No GPU took part.",),
    )


def red() -> RunResult:
    return result(
        case("lora-logprob/tiny/base", Status.PASSED, measured("max_abs_error", 1.7e-6, 4.5e-6)),
        case(
            "lora-logprob/tiny/adapter-0",
            Status.FAILED,
            measured("max_abs_error", 0.217, 4.5e-6, note="2 × peer 1.79e-06 + floor 9.54e-07"),
            measured("effect_slope_off_one", 0.0987654321, 3.6e-6, unit="1", source=LimitSource.EFFECT),
            reason="max_abs_error = 0.217 nat, limit <= 4.5e-06 (peer), margin ×2.07e-05",
            evidence={
                "errors": by_position(9e4).as_evidence(),
                "worst": {"prompt": 1, "position": 27, "served": -6.20904922, "oracle": -5.9919766},
                "drift": [{"round": n, "error": 0.5 * n, "note": f"round {n}"} for n in range(4)],
            },
        ),
        case(
            "kernels/triton/shape-1",
            Status.WAIVED,
            measured("head_max_abs_error", math.nan, 3.0, unit="1"),
            reason="waived by known-fault until 2027-01-31",
            evidence={"limit_use": by_head(True).as_evidence()},
            waiver="known-fault",
        ),
        faults=(FAULT,),
        waivers=(WAIVER,),
        warnings=("FAULT INJECTED ON PURPOSE: adapter-scaling (1.1); this run says nothing about the hardware",),
        does_not_prove=("No GPU took part.",),
    )


def incomplete() -> RunResult:
    dead = SessionResult(
        id="s",
        ended=True,
        trouble=Trouble.CRASHED,
        reason="SIGSEGV",
        log="logs/s.log",
        log_tail="\n".join(f"line {n}" for n in range(60)),
    )
    missing = [
        case(f"multi-lora/tiny/row-{n}", Status.MISSING, reason="not run: session s crashed: SIGSEGV", started=None)
        for n in range(3)
    ]
    return result(
        case("lora-logprob/tiny/base", Status.CRASHED, reason="session s crashed: SIGSEGV, in this case", seconds=None),
        *missing,
        case("kernels/triton/shape-1", Status.PASSED, measured("rms_error", 1.0, 2.0), session="t"),
        sessions=(dead, SessionResult(id="t", ended=True, ready_seconds=3.0, log="logs/t.log")),
    )


BY_CODE = {
    ExitCode.CONFORMS: green(),
    ExitCode.NOT_CONFORMING: red(),
    ExitCode.ENVIRONMENT: result(case("kernels/triton/shape-1", Status.ENVIRONMENT, reason="out of memory, 9 GiB")),
    ExitCode.INCOMPLETE: incomplete(),
    ExitCode.INTERRUPTED: result(
        case("kernels/triton/shape-1", Status.PASSED, measured("rms_error", 1.0, 2.0)),
        case("kernels/triton/shape-2", Status.MISSING, reason="not run: the run was interrupted"),
        interrupted=True,
    ),
}
QUALIFY_PROBLEM = result(
    case("kernels/triton/shape-1", Status.PASSED, measured("rms_error", 1.0, 2.0)),
    mode=Mode.QUALIFY,
    problems=(Problem(exit_code=ExitCode.NOT_CONFORMING, text="qualify: the mandatory battery lora-logprob is gone"),),
)


def many(count: int, failing: int = 60) -> RunResult:
    """`count` cases with eight measurements each; `failing` of them fail, with a plot each."""
    draw = random.Random(5)
    plot = by_position(9e4).as_evidence()
    cases = []
    for index in range(count):
        red_one = index % (count // failing) == 0
        values = [measured(f"measure_{n}", draw.lognormvariate(-2, 0.6), 1e4, note="2 × peer") for n in range(7)]
        values.append(measured("max_abs_error", 3.0 if red_one else draw.uniform(0.01, 0.9)))
        cases.append(
            case(
                f"lora-logprob/model-{index // 50}/case-{index}",
                Status.FAILED if red_one else Status.PASSED,
                *values,
                reason="max_abs_error = 3 nat, limit <= 1 (peer), margin ×0.333" if red_one else "",
                evidence={"errors": plot, "worst": {"position": index}},
            )
        )
    return result(*cases)
