"""The verdict of a run, and why, in one sentence."""

from kit.errors import ExitCode
from kit.measurement import Comparison, Measurement
from kit.results.model import CaseResult, RunResult, Status
from kit.results.plain import in_words
from kit.results.text import describe, one_line

TITLES = {
    ExitCode.CONFORMS: "Conforms",
    ExitCode.NOT_CONFORMING: "Does not conform",
    ExitCode.ENVIRONMENT: "Cannot be judged: the machine is at fault",
    ExitCode.IMAGE: "Not run: an image or asset is at fault",
    ExitCode.INCOMPLETE: "Incomplete",
    ExitCode.INTERRUPTED: "Interrupted",
}
_TITLE_OF_A_PART = "The cases that were chosen conform"
_GRAVITY = (
    Status.CRASHED,
    Status.TIMEOUT,
    Status.ENVIRONMENT,
    Status.FAILED,
    Status.UNEXPECTED_PASS,
    Status.MISSING,
    Status.WAIVED,
    Status.SKIPPED,
    Status.PASSED,
)
NOT_MEASURED = (Status.CRASHED, Status.TIMEOUT, Status.MISSING)
RED = (*NOT_MEASURED, Status.ENVIRONMENT, Status.FAILED)


def telling(case: CaseResult) -> Measurement | None:
    """The measurement that tells most about a case: the worst; where all are within, the nearest to an upper limit.

    Lower bounds say little about a case that keeps them: a cosine of 1 has margin ×1.01 to 0.99, and cannot have more.
    """
    worst = case.worst
    if worst is None or not worst.within:
        return worst
    errors = [m for m in case.measurements if m.comparison is Comparison.AT_MOST and m.margin is not None]
    return min(errors, key=lambda m: m.margin or 0.0, default=worst)


def clause(measurement: Measurement) -> str:
    """`describe`, with the signs of print."""
    return describe(measurement).replace("limit <= ", "limit ≤ ").replace("limit >= ", "limit ≥ ")


def in_full(case: CaseResult, found: Measurement) -> str:
    """`clause`, and before it what it means, where that is known."""
    return "; ".join(filter(None, (plain(case), clause(found))))


def plain(case: CaseResult) -> str:
    """What is wrong in plain words; empty where the numbers have to do."""
    return in_words(case.measurements) if case.status in (Status.FAILED, Status.WAIVED) else ""


def gravity(case: CaseResult) -> tuple[int, float]:
    """Sorts cases as they should be read: what ended a session, then failures from the worst margin on, then the rest.

    Missing cases come after failures, since they follow from what ended their session.
    """
    return graded(case.status, telling(case))


def graded(status: Status, found: Measurement | None) -> tuple[int, float]:
    """`gravity` of a case whose telling measurement is known."""
    margin = found.margin if found is not None else None
    if margin is None:
        margin = float("inf") if found is None or found.within else 0.0
    return _GRAVITY.index(status), margin


def title_of(result: RunResult) -> str:
    """The verdict in a few words; a part of the profile never conforms as the profile does."""
    part = result.part and result.exit_code is ExitCode.CONFORMS
    return _TITLE_OF_A_PART if part else TITLES[result.exit_code]


def verdict_sentence(result: RunResult) -> str:
    """Why the run ended as it did, and of how much of its profile it tells."""
    prefix = f"Only {result.part} of the profile {'was' if len(result.cases) == 1 else 'were'} planned. "
    return (prefix if result.part else "") + _why(result)


def _why(result: RunResult) -> str:
    match result.exit_code:
        case ExitCode.CONFORMS:
            return _conforms(result)
        case ExitCode.NOT_CONFORMING:
            return _not_conforming(result)
        case ExitCode.ENVIRONMENT:
            return _environment(result)
        case ExitCode.IMAGE:
            return f"{_problem(result, ExitCode.IMAGE)}."
        case ExitCode.INTERRUPTED:
            measured = sum(bool(case.measurements) for case in result.cases)
            return (
                f"The run was stopped from outside after {measured} of {_cases(len(result.cases))} had been measured."
            )
        case _:
            return _incomplete(result)


def _conforms(result: RunResult) -> str:
    counts = result.counts
    judged = [case for case in result.cases if case.status is Status.PASSED]
    tightest = min(judged, key=gravity, default=None)
    text = f"{_kept(counts[Status.PASSED], len(result.cases))}"
    if tightest is not None and (found := telling(tightest)) is not None and found.margin is not None:
        text += f"; the tightest is {_decisive(tightest)}"
    extra = [
        f"{counts[status]} {what}"
        for status, what in (
            (Status.WAIVED, "failed and waived"),
            (Status.SKIPPED, "skipped"),
            (Status.UNEXPECTED_PASS, "passed although a waiver says otherwise"),
        )
        if counts[status]
    ]
    return text + "".join(f"; {part}" for part in extra) + "."


def _kept(passed: int, planned: int) -> str:
    if passed == planned:
        return "The one case keeps all its limits" if planned == 1 else f"All {planned:,} cases keep all their limits"
    return f"{passed:,} of {_cases(planned)} keep all their limits"


def _not_conforming(result: RunResult) -> str:
    failed = sorted((case for case in result.cases if case.status is Status.FAILED), key=gravity)
    if failed:
        count = f"{len(failed):,} of {_cases(len(result.cases))} failed"
        what = "it is" if len(failed) == 1 else "the worst is"
        return f"{count}; {what} {_decisive(failed[0])}."
    if passes := [case for case in result.cases if case.status is Status.UNEXPECTED_PASS and not result.problems]:
        return f"{_cases(len(passes))} passed although a waiver says otherwise, which a qualification does not accept."
    return (
        f"No case failed, but the rules of mode {result.mode} are broken: {_problem(result, ExitCode.NOT_CONFORMING)}."
    )


def _environment(result: RunResult) -> str:
    cases = [case for case in result.cases if case.status is Status.ENVIRONMENT]
    if not cases:
        return f"The machine is not fit to judge on: {_problem(result, ExitCode.ENVIRONMENT)}."
    verb = "was" if len(cases) == 1 else "were"
    text = f"{len(cases):,} of {_cases(len(result.cases))} {verb} stopped by the machine, not by what is under test: "
    return text + f"{_reason(cases[0])}." + _also_failed(result)


def _incomplete(result: RunResult) -> str:
    gone = sorted((case for case in result.cases if case.status in NOT_MEASURED), key=gravity)
    if not result.cases:
        return "No case was planned, so nothing was measured."
    if not gone:
        return f"{_problem(result, ExitCode.INCOMPLETE)}." + _also_failed(result)
    first, count = gone[0], result.counts
    if first.status is Status.MISSING:
        text = f"{len(gone):,} of {_cases(len(result.cases))} told nothing: {_reason(first)}"
    else:
        what = {Status.CRASHED: "crashed", Status.TIMEOUT: "was over its time limit"}[first.status]
        text = f"{first.id} {what}: {_reason(first)}"
        rest = [f"{count[s]:,} {s.value}" for s in NOT_MEASURED if count[s]]
        text += f" ({', '.join(rest)} of {_cases(len(result.cases))})"
    return one_line(text, 600) + "." + _also_failed(result)


def _also_failed(result: RunResult) -> str:
    failed = result.counts[Status.FAILED]
    return f" Beside that, {_cases(failed)} failed, which may be a consequence." if failed else ""


def _decisive(case: CaseResult) -> str:
    found = telling(case)
    if found is None:
        return one_line(f"{case.id}: {_reason(case)}")
    told_by_it = not case.reason or describe(found) in case.reason
    return one_line(f"{case.id}: {in_full(case, found) if told_by_it else _reason(case)}", 500)


def _reason(case: CaseResult) -> str:
    return one_line(case.reason.removeprefix("not run: ") or case.status.value).rstrip(".")


def _problem(result: RunResult, code: ExitCode) -> str:
    texts = [problem.text for problem in result.problems if problem.exit_code is code]
    text = one_line(texts[0]).rstrip(".") if texts else "every case was skipped, so nothing was measured"
    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    return text[:1].upper() + text[1:] + more


def _cases(count: int) -> str:
    return f"{count:,} case" + ("" if count == 1 else "s")
