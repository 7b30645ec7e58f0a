"""JUnit XML: the table of docs/architecture.md, what CI systems refuse, and any text at all in it."""

import io
import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped
from lxml import etree

from kit.errors import ExitCode
from kit.events import Trouble
from kit.measurement import Comparison, LimitSource, Measurement
from kit.plan import InjectedFault
from kit.results.junit import to_junit
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
from tests.unit.results.streams import KERNEL, LORA, MIXED, error_of

PROFILE = ProfileFacts(
    name="cpu", title="No GPU", vendor="cpu", architecture="x86_64", gpus=0, image="cpu", mandatory=("kernels",)
)
NODE = {
    Status.PASSED: None,
    Status.FAILED: ("failure", "failed"),
    Status.CRASHED: ("error", "crashed"),
    Status.TIMEOUT: ("error", "timeout"),
    Status.MISSING: ("error", "missing"),
    Status.ENVIRONMENT: ("error", "environment"),
    Status.SKIPPED: ("skipped", "skipped"),
    Status.WAIVED: ("skipped", "waived"),
    Status.UNEXPECTED_PASS: None,
}


def a_case(status: Status = Status.PASSED, name: str = KERNEL, **fields: object) -> CaseResult:
    base: dict[str, object] = {
        "id": name,
        "battery": name.split("/")[0],
        "session": "s",
        "status": status,
        "seconds": 1.5,
    }
    return CaseResult.model_validate(base | fields)


def a_result(*cases: CaseResult, mode: Mode = Mode.CI, interrupted: bool = False, **fields: object) -> RunResult:
    problems = tuple(fields.pop("problems", ()))  # type: ignore[call-overload]
    base: dict[str, object] = {
        "kit_version": "1",
        "run_id": "r",
        "profile": PROFILE,
        "mode": mode,
        "runtime": "docker",
        "host": {"hostname": "lab-7"},
        "cases": cases,
        "problems": problems,
        "sessions": (SessionResult(id="s", ended=True, log="logs/s.log"),),
        "started": 1_796_126_400.0,
        "finished": 1_796_126_410.0,
        "interrupted": interrupted,
        "exit_code": exit_code_of(mode, cases, problems, interrupted),
    }
    return RunResult.model_validate(base | fields)


def parse(result: RunResult) -> etree._Element:
    """The document, after both parsers took it and every count was compared with the nodes."""
    data = to_junit(result)
    root = etree.fromstring(data)
    for suite in root.iter("testsuite"):
        tests = suite.findall("testcase")
        assert int(suite.get("tests")) == len(tests)
        for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(key)) == sum(len(test.findall(tag)) for test in tests)
        for test in tests:
            assert {child.tag for child in test} <= {"failure", "error", "skipped", "system-out"}
            assert sum(child.tag != "system-out" for child in test) <= 1
    assert root.get("skipped") is None, "the schema of Jenkins refuses it"
    for key in ("tests", "failures", "errors"):
        assert int(root.get(key)) == sum(int(suite.get(key)) for suite in root)
    pairs = [(test.get("classname"), test.get("name")) for test in root.iter("testcase")]
    assert len(set(pairs)) == len(pairs)
    read = JUnitXml.fromroot(etree.fromstring(data))
    assert sum(len(list(suite)) for suite in read) == len(pairs)
    kinds = {"failures": Failure, "errors": Error, "skipped": Skipped}
    for key, kind in kinds.items():
        seen = sum(isinstance(entry, kind) for suite in read for test in suite for entry in test.result)
        assert seen == sum(int(suite.get(key)) for suite in root)
    return root


@pytest.mark.parametrize("status", list(Status))
def test_each_row_of_the_table(status: Status) -> None:
    case = a_case(status, reason="what happened", measurements=(error_of(2.0),))
    test = parse(a_result(case, a_case(name=LORA))).find(".//testsuite[@name='kernels']/testcase")
    nodes = [child for child in test if child.tag != "system-out"]
    if NODE[status] is None:
        assert nodes == []
    else:
        assert [(node.tag, node.get("type")) for node in nodes] == [NODE[status]]
        message = nodes[0].get("message")
        assert "what happened" in message and "max_abs_error = 2 nat" in message and "\n" not in message
    assert f"[[PROPERTY|status={status}]]" in test.findtext("system-out")
    assert "[[PROPERTY|max_abs_error=2.0]]" in test.findtext("system-out")


def test_an_unexpected_pass_is_a_failure_in_qualify() -> None:
    case = a_case(Status.UNEXPECTED_PASS, reason="passed, although waiver w says that it fails")
    node = parse(a_result(case, mode=Mode.QUALIFY)).find(".//failure")
    assert node.get("type") == "unexpected-pass"


def test_a_waived_case_shows_its_measurements_and_its_waiver() -> None:
    root = parse(a_result(a_case(Status.WAIVED, reason="waived by w", waiver="w", measurements=(error_of(2.0),))))
    assert "OUTSIDE max_abs_error = 2 nat, limit <= 1 (peer), margin ×0.5" in root.findtext(".//skipped")
    assert "[[PROPERTY|waiver=w]]" in root.findtext(".//system-out")


def test_one_suite_per_battery_and_readable_names() -> None:
    root = parse(a_result(a_case(name=LORA), a_case(name=KERNEL), a_case(name=MIXED)))
    assert [suite.get("name") for suite in root] == ["lora-logprob", "kernels", "multi-lora"]
    test = root.find(".//testsuite[@name='lora-logprob']/testcase")
    assert (test.get("classname"), test.get("name"), test.get("time")) == ("lora-logprob.tiny", "adapter-1", "1.500")


def test_ids_that_would_give_one_name_stay_apart() -> None:
    names = ["kernels/a.b/c", "kernels/a/b/c", "kernels/a b/c", "kernels/a\tb/c", "kernels", "kernels/"]
    root = parse(a_result(*(a_case(name=name) for name in names)))
    assert int(root.get("tests")) == len(names)


def test_facts_of_the_run_are_properties_of_each_suite() -> None:
    result = a_result(
        a_case(name=LORA),
        a_case(name=KERNEL, session="t"),
        image={"id": "sha256:1"},
        worker={"torch": "2.13.0"},
        sessions=(
            SessionResult(id="s", ended=True, log="logs/s.log", facts={"device": "cpu"}),
            SessionResult(id="t", ended=True, log="logs/t.log", facts={"device": "gpu"}),
        ),
        does_not_prove=("No GPU took part.",),
        warnings=("look here",),
        faults=(InjectedFault(name="adapter-scaling", strength=1.1),),
    )
    for suite in parse(result):
        facts = {prop.get("name"): prop.get("value") for prop in suite.find("properties")}
        assert facts["profile.name"] == "cpu" and facts["run.mode"] == "ci" and facts["run.exit_code"] == "0"
        assert facts["image.id"] == "sha256:1" and facts["worker.torch"] == "2.13.0"
        assert facts["does_not_prove.1"] == "No GPU took part." and facts["warning.1"] == "look here"
        assert facts["fault.adapter-scaling"] == "1.1"
        own = "s" if suite.get("name") == "lora-logprob" else "t"
        assert [name for name in facts if name.startswith("session.")] == [f"session.{own}.device"]
        assert (suite.get("hostname"), suite.get("timestamp")) == ("lab-7", "2026-12-01T12:00:00")


def test_measures_are_property_lines() -> None:
    nan = error_of(float("nan"), limit=5e-3)
    odd = Measurement(name="rows ]] of | a=b\nc", value=3.0, unit="count")
    exact = Measurement(name="ids", value=0, comparison=Comparison.EQUAL, limit=0, source=LimitSource.EXACT)
    root = parse(a_result(a_case(Status.FAILED, measurements=(nan, odd, exact), evidence={"worst": {"row": 3}})))
    lines = root.findtext(".//system-out").splitlines()
    assert "[[PROPERTY|max_abs_error=NaN]]" in lines
    assert "[[PROPERTY|max_abs_error.limit=<= 0.005 (peer)]]" in lines
    assert "[[PROPERTY|max_abs_error.margin=0]]" in lines
    assert "[[PROPERTY|rows_of_a_b_c=3.0]]" in lines
    assert "[[PROPERTY|ids.limit=== 0.0 (exact)]]" in lines
    assert 'worst: {"row": 3}' in lines
    assert "[[PROPERTY|log=logs/s.log]]" in lines


def test_a_crash_shows_the_end_of_the_log_and_points_to_it() -> None:
    tail = "\n".join(f"\x1b[31mline {n}\ufffe" for n in range(5000))
    session = SessionResult(
        id="s", ended=True, trouble=Trouble.CRASHED, reason="SIGSEGV", log="logs/s.log", log_tail=tail
    )
    case = a_case(Status.CRASHED, reason="session s crashed: SIGSEGV", evidence={"long": "x" * 50_000})
    root = parse(a_result(case, sessions=(session,)))
    text, out = root.findtext(".//error"), root.findtext(".//system-out")
    assert "logs/s.log" in text and text.endswith("\\x1b[31mline 4999\\ufffe")
    assert len(text) < 5_000 and len(out) < 5_000
    assert "result.json" in out


@pytest.mark.parametrize(
    ("code", "tag", "kind"),
    [
        (ExitCode.INCOMPLETE, "error", "incomplete"),
        (ExitCode.ENVIRONMENT, "error", "environment"),
        (ExitCode.NOT_CONFORMING, "failure", "not-conforming"),
    ],
)
def test_a_problem_of_the_run_is_red_beside_green_cases(code: ExitCode, tag: str, kind: str) -> None:
    root = parse(a_result(a_case(), problems=(Problem(exit_code=code, text="a session that nobody ended"),)))
    node = root.find(f".//testsuite[@name='run']/testcase/{tag}")
    assert (node.get("type"), node.get("message")) == (kind, "a session that nobody ended")


def test_a_red_run_never_has_a_green_file() -> None:
    for result in (a_result(), a_result(a_case(Status.SKIPPED)), a_result(a_case(), interrupted=True)):
        root = parse(result)
        assert result.exit_code != 0
        assert int(root.get("errors")) >= 1


def test_a_green_run_has_no_case_that_was_not_planned() -> None:
    assert [suite.get("name") for suite in parse(a_result(a_case()))] == ["kernels"]


@pytest.mark.parametrize("seconds", [None, 0.0, 1e-9, float("nan"), float("inf"), -3.0])
def test_times_are_plain_numbers(seconds: float | None) -> None:
    root = parse(a_result(a_case(seconds=seconds)))
    assert {node.get("time") for node in root.iter("testcase", "testsuite")} == {"0.000"}


ANY_TEXT = st.text(st.characters(), max_size=60)
PART = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,12}", fullmatch=True)
FLOAT = st.floats()
MEASURE = st.one_of(
    st.builds(Measurement, name=ANY_TEXT, value=FLOAT, unit=ANY_TEXT, note=ANY_TEXT),
    st.builds(
        Measurement,
        name=ANY_TEXT,
        value=FLOAT,
        unit=ANY_TEXT,
        comparison=st.sampled_from(Comparison),
        limit=st.floats(allow_nan=False),
        source=st.sampled_from(LimitSource),
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | FLOAT | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=5,
)
CASE = st.builds(
    lambda id, **rest: CaseResult(id=id, battery=id.split("/")[0], session="s", **rest),
    id=st.tuples(PART, PART, PART).map("/".join),
    status=st.sampled_from(Status),
    reason=ANY_TEXT,
    measurements=st.lists(MEASURE, max_size=3).map(tuple),
    evidence=st.dictionaries(ANY_TEXT, JSON, max_size=3),
    seconds=st.none() | FLOAT,
    waiver=st.none() | ANY_TEXT,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    cases=st.lists(CASE, max_size=4, unique_by=lambda case: case.id),
    facts=st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3),
    tail=ANY_TEXT,
    problems=st.lists(ANY_TEXT, max_size=2),
    mode=st.sampled_from(Mode),
)
def test_any_text_gives_a_file_that_every_parser_reads(
    cases: list[CaseResult], facts: dict[str, str], tail: str, problems: list[str], mode: Mode
) -> None:
    result = a_result(
        *cases,
        mode=mode,
        problems=[Problem(exit_code=ExitCode.INCOMPLETE, text=text) for text in problems],
        worker=facts,
        host={"hostname": tail, **facts},
        sessions=(SessionResult(id="s", ended=True, log="logs/s.log", log_tail=tail, facts=facts),),
        warnings=tuple(facts),
    )
    root = parse(result)
    extra = root.find("testsuite[@name='run']")
    planned = int(root.get("tests")) - (len(extra.findall("testcase")) if extra is not None else 0)
    assert planned == len(cases)
    red = int(root.get("failures")) + int(root.get("errors"))
    assert (red > 0) == (result.exit_code != 0)
    again = RunResult.model_validate_json(result.to_json())
    assert json.loads(again.to_json()) == json.loads(result.to_json())


def test_ten_thousand_cases_stay_small_and_quick() -> None:
    measurements = tuple(error_of(0.1 * n) for n in range(8))
    evidence = {"rows": list(range(400))}
    cases = [
        a_case(
            Status.FAILED, f"kernels/triton/shape-{n}", reason="outside", measurements=measurements, evidence=evidence
        )
        for n in range(10_000)
    ]
    result = a_result(*cases)
    begin = time.process_time()
    data = to_junit(result)
    assert time.process_time() - begin < 10
    assert len(data) < 30_000_000
    assert sum(1 for _ in etree.iterparse(io.BytesIO(data), tag="testcase")) == 10_000
