"""The record of a run, altered: `kit verify` must refuse what it did not refuse before."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from kit.errors import KitError
from kit.faults.kind import FaultKind
from kit.faults.report_catalogue import REPORT_FAULTS
from kit.plan import Plan
from kit.results.files import JUNIT_FILE, REPORT_FILE, RESULT_FILE
from kit.results.stored import EVENTS_FILE, PLAN_FILE, as_json
from kit.results.sums import SUMS_FILE, sums_of
from kit.results.verify import verify_files
from kit.selftest.outcome import Caught, FaultOutcome

Files = dict[str, bytes]

_RED = ("failed", "crashed", "timeout")


def report_outcomes(files: Files, kinds: Sequence[FaultKind] = REPORT_FAULTS) -> Iterator[FaultOutcome]:
    """What `kit verify` says of the record under each fault; `files` by name, sealed.

    A fault that finds nothing to alter, as where no case was red, is left out.
    """
    before = set(verify_files(files).refusals)
    for kind in kinds:
        altered = dict(files)
        try:
            ALTERATIONS[kind.name](altered)
        except (LookupError, ValueError):
            continue
        if altered == files:
            continue
        if kind.name != "report-byte-flipped":
            altered[SUMS_FILE] = sums_of(altered)
        fresh = [refusal for refusal in _refusals(altered) if refusal not in before]
        caught = (
            (Caught(case="kit verify", status="refused", seconds=None, measurement=fresh[0][:200]),) if fresh else ()
        )
        yield FaultOutcome.of(kind, asked=("kit verify",), caught=caught, batteries={"verify": bool(caught)})


def _refusals(files: Files) -> tuple[str, ...]:
    try:
        return verify_files(files).refusals
    except KitError as fault:
        return (str(fault),)


def _in_result(change: Callable[[Any], None]) -> Callable[[Files], None]:
    def alter(files: Files) -> None:
        result = json.loads(files[RESULT_FILE])
        change(result)
        files[RESULT_FILE] = json.dumps(result, indent=2, ensure_ascii=False).encode() + b"\n"

    return alter


def _flip_byte(files: Files) -> None:
    name = max((name for name in files if name.startswith("logs/")), key=lambda name: len(files[name]))
    middle = len(files[name]) // 2
    files[name] = files[name][:middle] + bytes([files[name][middle] ^ 1]) + files[name][middle + 1 :]


def _halve_last(files: Files) -> None:
    lines = files[EVENTS_FILE].splitlines(keepends=True)
    place = max(n for n, line in enumerate(lines) if json.loads(line).get("measurements"))
    event = json.loads(lines[place])
    measured = event["measurements"][-1]
    measured["value"] = 0.5 * float(measured["value"]) if float(measured["value"]) else 1.0
    lines[place] = json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    files[EVENTS_FILE] = b"".join(lines)


def _lose_last(files: Files) -> None:
    files[EVENTS_FILE] = b"".join(files[EVENTS_FILE].splitlines(keepends=True)[:-1])


def _remove_case(result: Any) -> None:
    result["cases"].pop()


def _widen_limit(result: Any) -> None:
    limited = [m for case in result["cases"] for m in case["measurements"] if m.get("limit")]
    limited[0]["limit"] *= 10.0


def _say_passed(result: Any) -> None:
    red = [case for case in result["cases"] if case["status"] in _RED]
    red[0]["status"] = "passed"


def _empty_junit(files: Files) -> None:
    for mark in (b"<failure", b"<error"):
        start = files[JUNIT_FILE].find(mark)
        if start >= 0:
            text = files[JUNIT_FILE]
            end = text.index(b"</" + mark[1:] + b">", start) + len(mark) + 2
            files[JUNIT_FILE] = text[:start] + text[end:]
            return


def _forget_faults(files: Files) -> None:
    plan = Plan.model_validate_json(files[PLAN_FILE])
    cases = tuple(case.model_copy(update={"faults": ()}) for case in plan.cases)
    files[PLAN_FILE] = as_json(plan.model_copy(update={"faults": (), "cases": cases}))


def _whiten_html(files: Files) -> None:
    for status in _RED:
        mark = f'<span class="chip {status}">{status}</span>'.encode()
        files[REPORT_FILE] = files[REPORT_FILE].replace(mark, b'<span class="chip passed">passed</span>', 1)


ALTERATIONS: Final[dict[str, Callable[[Files], None]]] = {
    "report-byte-flipped": _flip_byte,
    "report-event-altered": _halve_last,
    "report-event-lost": _lose_last,
    "report-case-removed": _in_result(_remove_case),
    "report-limit-altered": _in_result(_widen_limit),
    "report-status-altered": _in_result(_say_passed),
    "report-junit-altered": _empty_junit,
    "report-plan-altered": _forget_faults,
    "report-html-altered": _whiten_html,
}
"""By fault, the change of a record's files, in place. Raises LookupError or ValueError where there is nothing to alter."""
