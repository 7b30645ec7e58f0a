"""What stands in a JUnit file, to the letter: messages, bodies, properties, times and names."""

import json
import time

import pytest
from lxml import etree

from kit.errors import ExitCode
from kit.measurement import Comparison, LimitSource, Measurement
from kit.results.model import Problem, RunResult, SessionResult, Status
from tests.unit.results.streams import KERNEL, error_of
from tests.unit.results.test_junit import a_case, a_result, parse

RED = "max_abs_error = 2 nat, limit <= 1 (peer), margin ×0.5"
GREEN = Measurement(
    name="effect",
    value=4.0,
    unit="nat²",
    comparison=Comparison.AT_LEAST,
    limit=1.0,
    source=LimitSource.EFFECT,
    note="half of 2",
)
SEEN = Measurement(name="rows", value=3.0, unit="count")
LOG = SessionResult(id="s", ended=True, log="logs/s.log", log_tail="last words")


def first(result: RunResult) -> etree._Element:
    return parse(result).find(".//testcase")


def test_a_failure_lists_every_measurement() -> None:
    case = a_case(Status.FAILED, reason="far off", measurements=(error_of(2.0), GREEN, SEEN))
    node = first(a_result(case)).find("failure")
    assert node.get("message") == f"far off; {RED}"
    assert node.text.splitlines() == [
        "far off",
        f"OUTSIDE {RED}",
        "within  effect = 4 nat², limit >= 1 (effect), margin ×4; half of 2",
        "context rows = 3 count",
    ]


def test_a_message_tells_the_decisive_measurement_once() -> None:
    case = a_case(Status.FAILED, reason=f"it is {RED}", measurements=(error_of(2.0),))
    assert first(a_result(case)).find("failure").get("message") == f"it is {RED}"
    case = a_case(Status.CRASHED, reason="killed")
    assert first(a_result(case)).find("error").get("message") == "killed"


def test_a_message_is_cut_at_500_characters() -> None:
    named = error_of(2.0).model_copy(update={"name": "m" * 250})
    case = a_case(Status.FAILED, reason="x" * 400, measurements=(named,))
    message = first(a_result(case)).find("failure").get("message")
    assert message == "x" * 299 + "…; " + "m" * 197 + "…"
    assert len(message) == 500


def test_without_a_reason_the_status_speaks() -> None:
    node = first(a_result(a_case(Status.CRASHED))).find("error")
    assert (node.get("message"), node.text) == ("crashed", "crashed")


@pytest.mark.parametrize("status", [Status.CRASHED, Status.TIMEOUT, Status.ENVIRONMENT])
def test_the_end_of_the_log_follows_what_happened(status: Status) -> None:
    node = first(a_result(a_case(status, reason="gone"), sessions=(LOG,))).find("error")
    assert node.text.splitlines() == ["gone", "-- end of logs/s.log", "last words"]


@pytest.mark.parametrize("status", [Status.FAILED, Status.MISSING])
def test_a_log_is_not_shown_where_the_process_is_not_at_fault(status: Status) -> None:
    test = first(a_result(a_case(status, reason="gone"), sessions=(LOG,)))
    assert "last words" not in etree.tostring(test, encoding="unicode")
    assert "-- end of" not in etree.tostring(first(a_result(a_case(Status.CRASHED, reason="gone"))), encoding="unicode")


def test_a_case_of_an_unknown_session_points_to_all_logs() -> None:
    test = first(a_result(a_case(session="elsewhere")))
    assert "[[PROPERTY|log=the_logs_folder]]" in test.find("system-out").text
    test = first(a_result(a_case(Status.CRASHED, session="elsewhere", reason="gone")))
    assert test.find("error").text == "gone"


def test_evidence_is_sorted_and_triage_is_told() -> None:
    told = [{"row": "row 1", "verdict": "near tie", "reason": "the gap is small"}]
    lines = first(a_result(a_case(evidence={"worst": {"b": 2, "a": 1}, "triage": told}))).find("system-out").text
    assert 'worst: {"a": 1, "b": 2}' in lines.splitlines()
    assert "[[PROPERTY|triage=row_1:_near_tie:_the_gap_is_small]]" in lines.splitlines()
    assert json.dumps(told, sort_keys=True) in lines


def test_lines_are_kept_whole_up_to_the_last_character_of_room() -> None:
    """4,000 characters, of which every line takes one more than it is long."""

    def lines(spare: int) -> list[str]:
        before = len("[[PROPERTY|status=passed]]") + len("[[PROPERTY|log=logs/s.log]]") + 2
        length = 4000 - before - len('x: ""') - 1 + spare
        return first(a_result(a_case(evidence={"x": "y" * length}))).find("system-out").text.splitlines()

    assert lines(0)[-1].startswith('x: "yyy')
    assert lines(1)[-1] == "[cut; all of it: result.json and logs/s.log]"
    assert len(lines(1)) == 3


def test_an_empty_property_is_a_line() -> None:
    nameless = SEEN.model_copy(update={"name": ""})
    lines = first(a_result(a_case(waiver="=", measurements=(nameless,)))).find("system-out").text.splitlines()
    assert {"[[PROPERTY|waiver=_]]", "[[PROPERTY|_=3.0]]"} <= set(lines)


def test_problems_are_cases_that_take_no_time() -> None:
    problems = (
        Problem(exit_code=ExitCode.NOT_CONFORMING, text="a skip is refused"),
        Problem(exit_code=ExitCode.INCOMPLETE, text=" "),
    )
    root = parse(a_result(a_case(), problems=problems, interrupted=True))
    tests = root.findall(".//testsuite[@name='run']/testcase")
    assert [(t.get("classname"), t.get("name"), t.get("time")) for t in tests] == [
        ("kit.run", f"problem-{n}", "0.000") for n in (1, 2, 3)
    ]
    told = [(node.tag, node.get("message"), node.text) for test in tests for node in test]
    assert told == [
        ("failure", "a skip is refused", "a skip is refused"),
        ("error", "a problem", "a problem"),
        ("error", "the run was interrupted", "the run was interrupted"),
    ]


def test_a_run_of_skips_is_no_run() -> None:
    node = parse(a_result(a_case(Status.SKIPPED, reason="no GPU"))).find(".//testsuite[@name='run']/testcase/error")
    assert (node.get("type"), node.text) == ("incomplete", "no case was run")


def test_the_document_says_whose_it_is_when_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        root = parse(a_result(a_case(), host={}))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (root.get("name"), root.get("time")) == ("kit", "10.000")
    suite = root.find("testsuite")
    # 1,796,126,400 s are 20,788 days and a half: 2026-12-01, noon in UTC.
    assert (suite.get("hostname"), suite.get("timestamp")) == ("unknown", "2026-12-01T12:00:00")
    names = {node.get("name"): node.get("value") for node in suite.iter("property")}
    assert names["kit.version"] == "1"


def test_a_battery_without_a_name_has_a_suite() -> None:
    assert parse(a_result(a_case(battery=" "))).find("testsuite").get("name") == "unnamed"


def test_a_single_case_has_a_text_of_4000_characters() -> None:
    text = "\n".join(f"line {n}" for n in range(2000))
    body = first(a_result(a_case(Status.FAILED, name=KERNEL, reason=text))).find("failure").text
    assert body.startswith("[cut to its end; all of it: logs/s.log]\n")
    assert 3980 <= len(body.partition("\n")[2]) <= 4000


def properties(result: RunResult) -> dict[str, str]:
    return {node.get("name"): node.get("value") for node in parse(result).find("testsuite").iter("property")}


def test_the_properties_of_a_suite() -> None:
    assert properties(a_result(a_case())) == {
        "kit.version": "1",
        "run.id": "r",
        "run.mode": "ci",
        "run.runtime": "docker",
        "run.exit_code": "0",
        "run.interrupted": "false",
        "planned": "1",
        "omitted": "0",
        "profile.name": "cpu",
        "profile.title": "No GPU",
        "profile.vendor": "cpu",
        "profile.architecture": "x86_64",
        "profile.gpus": "0",
        "profile.image": "cpu",
        "host.hostname": "lab-7",
    }
    assert properties(a_result(a_case(), runtime=None))["run.runtime"] == "none"


def test_a_property_is_cut_at_1000_characters() -> None:
    value = properties(a_result(a_case(), host={"words": "w" * 1200}))["host.words"]
    assert value == "w" * 999 + "…"


@pytest.mark.parametrize(
    ("case_id", "classname", "name"),
    [
        ("kernels/triton/shape-1", "kernels.triton", "shape-1"),
        ("alone", "kit", "alone"),
        ("kernels/ /", "kernels", "unnamed"),
        ("kernels/" + "n" * 300, "kernels", "n" * 191 + "…"),
    ],
)
def test_names_of_a_case(case_id: str, classname: str, name: str) -> None:
    test = first(a_result(a_case(name=case_id)))
    assert (test.get("classname"), test.get("name")) == (classname, name)


def test_cases_that_would_have_one_name_are_numbered() -> None:
    cases = [a_case(name=f"kernels/{' ' * n}triton/shape", seconds=0.5) for n in range(3)]
    tests = parse(a_result(*cases)).findall(".//testcase")
    assert [test.get("name") for test in tests] == ["shape", "shape (2)", "shape (3)"]
    assert {(test.get("classname"), test.get("time")) for test in tests} == {("kernels.triton", "0.500")}
