"""All-reduce between the ranks of a session: every element on every rank is the sum, bit by bit."""

from pydantic import JsonValue

from kit.check_spec import AllReduce
from kit.checks.outcome import CheckResult, shown
from kit.measurement import Measurement
from kit.oracles import limits
from kit.subjects.collectives import Collectives

_BYTES = {"float32": 4, "bfloat16": 2}


def check(spec: AllReduce, subject: Collectives) -> CheckResult:
    """The sums are small integers, exact in the dtype in any order, so no tolerance is needed.

    Raises:
        TimeoutError: ranks hang; they are named.
    """
    count = spec.mebibytes * 2**20 // _BYTES[spec.dtype]
    answers = subject.all_reduce(spec.dtype, count, spec.seconds)
    wrong = sum(answer.wrong for answer in answers)
    slowest = max(answer.seconds for answer in answers)
    rate = spec.mebibytes * 2**20 / slowest / 1e9
    measurements: list[Measurement] = [
        limits.exactly_none("wrong_elements", wrong, "elements on any rank that are not the sum of all contributions"),
        limits.context("seconds", slowest, "s", "slowest rank, fastest of three rounds"),
        limits.context("algorithm_bandwidth", rate, "GB/s", "bytes of one rank's tensor per second"),
    ]
    ranks: list[JsonValue] = [
        {
            "rank": answer.rank,
            "wrong": answer.wrong,
            "first": answer.first,
            "found": shown(answer.found),
            "expected": shown(answer.expected),
        }
        for answer in answers
        if answer.wrong
    ]
    return CheckResult(tuple(measurements), {"elements": count, "wrong_ranks": ranks})
