"""What the null subject is asked for."""

import math
import time

from kit.check_spec import NullCheck
from kit.checks.outcome import CheckResult
from kit.measurement import Comparison, LimitSource, Measurement
from kit.subjects.null import NullSubject


def check(spec: NullCheck, subject: NullSubject) -> CheckResult:
    """Do as the spec says; a pass measures 0 against a limit of 1.

    Raises:
        RuntimeError: act ``raise``.
    """
    value = {"fail": 2.0, "nan": math.nan}.get(spec.act, 0.0)
    match spec.act:
        case "raise":
            raise RuntimeError("asked to raise")
        case "kill":
            subject.die()
        case "exit":
            subject.leave()
        case "hang":
            subject.hang()
        case "orphan":
            subject.orphan()
        case "noise":
            subject.make_noise()
        case "flood":
            subject.flood()
        case "memory":
            subject.take_memory()
        case _:
            time.sleep(spec.seconds)
    return CheckResult(
        (Measurement(name="null", value=value, comparison=Comparison.AT_MOST, limit=1.0, source=LimitSource.EXACT),),
        {},
    )
