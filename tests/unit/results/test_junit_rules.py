"""The rules of docs/junit.md, each held against runs of every kind."""

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from junitparser import JUnitXml
from lxml import etree

from kit.errors import ExitCode
from kit.results.junit import to_junit
from kit.results.model import Mode, Problem, RunResult, SessionResult, Status
from tests.unit.results.streams import KERNEL, LORA, MIXED, error_of
from tests.unit.results.test_junit import a_case, a_result

SCHEMA = etree.XMLSchema(etree.parse(str(Path(__file__).with_name("junit.xsd"))))
NASTY = "\x1b[31mred\x00\ud800 ]]> <b>&amp;</b> \u202e ½Δ² \U0001f4a5\r\nat kit.Kernel(kernel.py:7)\n"


def every_status(count: int = 1, **fields: object) -> RunResult:
    cases = [
        a_case(
            status,
            f"{name}-{status}-{n}",
            reason=NASTY,
            measurements=(error_of(2.0), error_of(float("nan"))),
            evidence={"rows": [1.5] * 200, "text": NASTY},
            seconds=12_345.6789,
        )
        for n in range(count)
        for name in (LORA, MIXED, KERNEL)
        for status in Status
    ]
    return a_result(*cases, **fields)  # type: ignore[arg-type]


RUNS: dict[str, Callable[[], RunResult]] = {
    "green": lambda: a_result(a_case(), a_case(name=LORA)),
    "every status": every_status,
    "every status in qualify": lambda: every_status(mode=Mode.QUALIFY),
    "no case": a_result,
    "all skipped": lambda: a_result(a_case(Status.SKIPPED, reason="no")),
    "interrupted": lambda: a_result(a_case(), interrupted=True),
    "a problem of the run": lambda: a_result(a_case(), problems=(Problem(exit_code=ExitCode.INCOMPLETE, text=NASTY),)),
    "any text in the facts": lambda: a_result(
        a_case(),
        host={"hostname": NASTY, NASTY: NASTY, "empty": ""},
        sessions=(SessionResult(id="s", ended=True, log="logs/s.log", log_tail=NASTY * 500, facts={"a": NASTY}),),
    ),
    "names that need care": lambda: a_result(*(a_case(name=n) for n in ("k/a b/ c ", "k/a b/c", "k//", "k", " / / "))),
}


@pytest.fixture(params=list(RUNS))
def document(request: pytest.FixtureRequest) -> bytes:
    return to_junit(RUNS[request.param]())


def test_jenkins_and_surefire_schema(document: bytes) -> None:
    SCHEMA.assertValid(etree.fromstring(document))


def test_gitlab_keeps_the_first_of_two_equal_names(document: bytes) -> None:
    tests = ElementTree.fromstring(document).findall(".//testcase")
    pairs = [(test.get("classname", "").strip(), test.get("name", "").strip()) for test in tests]
    assert len(set(pairs)) == len(pairs)
    suites = [suite.get("name") for suite in ElementTree.fromstring(document)]
    assert len(set(suites)) == len(suites)


def test_gitlab_refuses_what_is_too_complex_or_too_large() -> None:
    data = to_junit(every_status(371))  # 10,017 cases
    root = etree.fromstring(data)
    objects = sum(1 + len(node.attrib) + bool((node.text or "").strip()) for node in root.iter())
    assert objects < 250_000
    assert len(data) < 30_000_000
    assert max(len(node.text or "") for node in root.iter()) < 1_000_000, "libxml2 stops at nodes of 10 MB"


def test_dorny_groups_by_classname_and_reads_times(document: bytes) -> None:
    """xml2js, then `name.trim()`, `parseFloat(time)`, failure or error before skipped."""
    for suite in ElementTree.fromstring(document):
        assert float(suite.get("time", "")) >= 0 and suite.get("name", "").strip()
        for test in suite.findall("testcase"):
            assert float(test.get("time", "")) >= 0 and test.get("name", "").strip() and test.get("classname")
            assert sum(child.tag in ("failure", "error", "skipped") for child in test) <= 1


def test_publish_unit_test_result_reads_by_junitparser(document: bytes, tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_bytes(document)
    read = JUnitXml.fromfile(str(path))
    root = ElementTree.fromstring(document)
    assert [suite.name for suite in read] == [suite.get("name") for suite in root]
    for suite, node in zip(read, root, strict=True):
        told = (suite.tests, suite.failures, suite.errors, suite.skipped)
        counted = [
            sum(len(t.findall(tag)) for t in node.findall("testcase")) for tag in ("failure", "error", "skipped")
        ]
        assert told == (len(node.findall("testcase")), *counted)
        for test in suite:
            assert len(test.result) <= 1 and all(entry.message for entry in test.result)


def test_azure_takes_dates_durations_and_a_host(document: bytes) -> None:
    for suite in ElementTree.fromstring(document):
        assert len(suite.get("timestamp", "")) == 19 and suite.get("hostname")
        total = sum(float(test.get("time", "")) for test in suite.findall("testcase"))
        assert float(suite.get("time", "")) == pytest.approx(total, abs=0.001 * len(suite))


def test_xml_1_0_everywhere(document: bytes) -> None:
    """Every parser takes it, recovers nothing, and finds no character that XML 1.0 has not."""
    strict = etree.XMLParser(recover=False, resolve_entities=False, huge_tree=False)
    text = etree.tostring(etree.fromstring(document, strict), encoding="unicode")
    assert not set(text) & {chr(code) for code in (*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF)}
    assert b"<!DOCTYPE" not in document and document.startswith(b"<?xml version='1.0' encoding='utf-8'?>")
