"""JUnit XML: a projection of the result for CI systems (Jenkins, GitLab, GitHub, Azure).

One suite per battery. Measures are ``[[PROPERTY|name=value]]`` lines of ``system-out``, since the schemas of Jenkins
and surefire refuse properties inside a test case; facts of the run are properties of the suite. What is red about the
run as a whole, and about no single case, is a test case of the suite ``run``: a red run never has a green file.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from xml.etree import ElementTree

from junit_xml import TestCase, TestSuite

from kit.errors import ExitCode
from kit.measurement import Measurement
from kit.results.model import CaseResult, Mode, Problem, RunResult, SessionResult, Status
from kit.results.text import capped, describe, one_line, printable
from kit.results.triage_text import verdict_lines

RUN_SUITE = "run"
_LONGEST_TEXT = 4_000
_SHORTEST_TEXT = 500
_ALL_TEXT = 12_000_000
_ERRORS = (Status.CRASHED, Status.TIMEOUT, Status.MISSING, Status.ENVIRONMENT)
_PROBLEM_TYPES = {
    ExitCode.INCOMPLETE: "incomplete",
    ExitCode.IMAGE: "image",
    ExitCode.ENVIRONMENT: "environment",
    ExitCode.NOT_CONFORMING: "not-conforming",
}


def to_junit(result: RunResult) -> bytes:
    """`result` as JUnit XML in UTF-8. Text is capped, with a pointer to the log, so that CI systems take the file."""
    longest = max(_SHORTEST_TEXT, min(_LONGEST_TEXT, _ALL_TEXT // max(1, len(result.cases))))
    names = _Names()
    root = ElementTree.Element("testsuites", name="kit")
    batteries = dict.fromkeys(case.battery for case in result.cases)
    for battery in batteries:
        cases = [case for case in result.cases if case.battery == battery]
        tests = [_test_case(case, result, names, longest) for case in cases]
        sessions = {case.session for case in cases}
        root.append(_suite(battery, tests, cases, result, sessions))
    if problems := _problem_cases(result, names):
        root.append(_suite(RUN_SUITE, problems, (), result, set()))
    for key in ("tests", "failures", "errors"):  # no "skipped": the schema of Jenkins refuses it here
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    root.set("time", _time(result.finished - result.started))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(
    name: str, tests: list[TestCase], cases: Iterable[CaseResult], result: RunResult, sessions: set[str]
) -> ElementTree.Element:
    suite = TestSuite(
        one_line(name) or "unnamed",
        tests,
        hostname=one_line(result.host.get("hostname", "")) or "unknown",
        timestamp=datetime.fromtimestamp(result.started, UTC).strftime("%Y-%m-%dT%H:%M:%S"),
        properties=dict(_properties(result, sessions)),
    )
    element: ElementTree.Element = suite.build_xml_doc()
    _mend(element, tests, {i for i, case in enumerate(cases) if case.status is Status.WAIVED})
    return element


def _mend(suite: ElementTree.Element, tests: list[TestCase], waived: set[int]) -> None:
    """Set what junit-xml cannot: another type than "skipped" on `skipped`, and a time on every case and suite.

    junit-xml writes no time for a case of 0 s, and a suite's as a bare float, which may come out as ``1e-05``. Its
    attribute ``disabled`` is always 0 here, and unknown to the schema of surefire.
    """
    suite.attrib.pop("disabled", None)
    suite.set("time", _time(sum(test.elapsed_sec for test in tests)))
    for index, (element, test) in enumerate(zip(suite.iter("testcase"), tests, strict=True)):
        element.set("time", _time(test.elapsed_sec))
        if index in waived:
            for skipped in element.iter("skipped"):
                skipped.set("type", Status.WAIVED.value)


def _test_case(case: CaseResult, result: RunResult, names: "_Names", longest: int) -> TestCase:
    classname, name = names.of(case.id)
    session = next((s for s in result.sessions if s.id == case.session), None)
    log = session.log if session else "the logs folder"
    test = TestCase(name, classname, elapsed_sec=_seconds(case.seconds), stdout=_system_out(case, log, longest))
    message = _message(case)
    body = capped(_body(case, session), longest, log)
    if case.status is Status.FAILED or (case.status is Status.UNEXPECTED_PASS and result.mode is Mode.QUALIFY):
        test.add_failure_info(message, body, case.status.value)
    elif case.status in _ERRORS:
        test.add_error_info(message, body, case.status.value)
    elif case.status in (Status.SKIPPED, Status.WAIVED):
        test.add_skipped_info(message, body)
    return test


def _message(case: CaseResult) -> str:
    """One line: what happened; and the decisive measurement, unless it is what happened."""
    reason = one_line(case.reason) or case.status.value
    worst = case.worst
    decisive = describe(worst) if worst else ""
    return one_line(reason if decisive in reason else f"{reason}; {decisive}", 500)


def _body(case: CaseResult, session: SessionResult | None) -> str:
    lines = [case.reason or case.status.value]
    lines += [_measured_line(measurement) for measurement in case.measurements]
    if session and session.log_tail and case.status in (Status.CRASHED, Status.TIMEOUT, Status.ENVIRONMENT):
        lines += [f"-- end of {session.log}", session.log_tail]
    return "\n".join(lines)


def _measured_line(measurement: Measurement) -> str:
    mark = ("within " if measurement.within else "OUTSIDE") if measurement.judged else "context"
    return f"{mark} {describe(measurement)}" + (f"; {measurement.note}" if measurement.note else "")


def _system_out(case: CaseResult, log: str, longest: int) -> str:
    """Measures as property lines, then the evidence as JSON; whole lines only, within `longest` characters."""
    lines = [f"[[PROPERTY|status={case.status}]]", f"[[PROPERTY|log={_property_text(log)}]]"]
    if case.waiver:
        lines.append(f"[[PROPERTY|waiver={_property_text(case.waiver)}]]")
    lines += [f"[[PROPERTY|triage={_property_text(line)}]]" for line in verdict_lines(case)]
    for measurement in case.measurements:
        lines += _measure_lines(measurement)
    lines += [f"{key}: {json.dumps(value, sort_keys=True)}" for key, value in case.evidence.items()]
    kept: list[str] = []
    room = longest
    for line in (one_line(line, longest) for line in lines):
        room -= len(line) + 1
        if room < 0:
            kept.append(f"[cut; all of it: result.json and {one_line(log)}]")
            break
        kept.append(line)
    return "\n".join(kept)


def _measure_lines(measurement: Measurement) -> Iterator[str]:
    name = _property_text(measurement.name)
    yield f"[[PROPERTY|{name}={_digits(measurement.value)}]]"
    if measurement.limit is not None:
        yield f"[[PROPERTY|{name}.limit={measurement.comparison} {_digits(measurement.limit)} ({measurement.source})]]"
    if measurement.margin is not None:
        yield f"[[PROPERTY|{name}.margin={measurement.margin:.6g}]]"


def _digits(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value)


def _property_text(text: str) -> str:
    return re.sub(r"[\[\]|=\s]+", "_", printable(text)) or "_"


def _problem_cases(result: RunResult, names: "_Names") -> list[TestCase]:
    problems = list(result.problems)
    if result.interrupted:
        problems.append(Problem(exit_code=ExitCode.INCOMPLETE, text="the run was interrupted"))
    if not problems and all(case.status is Status.SKIPPED for case in result.cases):
        problems.append(Problem(exit_code=ExitCode.INCOMPLETE, text="no case was run"))
    tests = []
    for index, problem in enumerate(problems, start=1):
        classname, name = names.of(f"kit/{RUN_SUITE}/problem-{index}")
        test = TestCase(name, classname, elapsed_sec=0.0)
        text, kind = one_line(problem.text) or "a problem", _PROBLEM_TYPES[problem.exit_code]
        if problem.exit_code is ExitCode.NOT_CONFORMING:
            test.add_failure_info(text, text, kind)
        else:
            test.add_error_info(text, text, kind)
        tests.append(test)
    return tests


def _properties(result: RunResult, sessions: set[str]) -> Iterator[tuple[str, str]]:
    profile = result.profile
    pairs: list[tuple[str, str]] = [
        ("kit.version", result.kit_version),
        ("run.id", result.run_id),
        ("run.mode", result.mode),
        ("run.runtime", result.runtime or "none"),
        ("run.exit_code", str(result.exit_code.value)),
        ("run.interrupted", str(result.interrupted).lower()),
        ("planned", str(len(result.cases))),
        ("omitted", str(result.omitted)),
        ("profile.name", profile.name),
        ("profile.title", profile.title),
        ("profile.vendor", profile.vendor),
        ("profile.architecture", profile.architecture),
        ("profile.gpus", str(profile.gpus)),
        ("profile.image", profile.image),
    ]
    pairs += [(f"fault.{fault.name}", str(fault.strength)) for fault in result.faults]
    for group, facts in (("image", result.image), ("host", result.host), ("worker", result.worker)):
        pairs += [(f"{group}.{key}", value) for key, value in facts.items()]
    for session in result.sessions:
        if session.id in sessions:
            pairs += [(f"session.{session.id}.{key}", value) for key, value in session.facts.items()]
    pairs += [(f"does_not_prove.{n}", text) for n, text in enumerate(result.does_not_prove, start=1)]
    pairs += [(f"warning.{n}", text) for n, text in enumerate(result.warnings, start=1)]
    for key, value in pairs:
        yield one_line(key), one_line(value, 1_000)


class _Names:
    """Gives every case its classname ``battery.subject`` and name ``aspect``; no pair twice (GitLab drops one)."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()

    def of(self, case_id: str) -> tuple[str, str]:
        *path, name = (part.strip() for part in one_line(case_id, 200).split("/"))
        classname = ".".join(part for part in path if part) or "kit"
        pair = candidate = (classname, name or "unnamed")
        count = 1
        while candidate in self._taken:
            count += 1
            candidate = (pair[0], f"{pair[1]} ({count})")
        self._taken.add(candidate)
        return candidate


def _seconds(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0


def _time(seconds: float) -> str:
    return f"{_seconds(seconds):.3f}"
