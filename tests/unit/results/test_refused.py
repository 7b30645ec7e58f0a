"""A run in which nothing was started, and what the host found on the machine: told by every report, judged by the right code."""

import pytest
from lxml import etree

from kit.errors import ExitCode
from kit.events import MachineFound, MachineLeft, RunRefused
from kit.finding import Finding, Severity
from kit.results.junit import to_junit
from kit.results.model import Status
from kit.results.report.sentence import verdict_sentence
from tests.unit.results.streams import (
    GOOD_END,
    KERNEL,
    LORA,
    RUNTIME_STARTED,
    case_events,
    judged,
    plan,
    session_events,
    worker,
)

PLAN = plan({"sglang-tiny": [LORA], "kernels-triton": [KERNEL]})
GOOD = worker(
    session_events("sglang-tiny", case_events("sglang-tiny", LORA, 0.1)),
    session_events("kernels-triton", case_events("kernels-triton", KERNEL, 0.1)),
)


@pytest.mark.parametrize("code", [ExitCode.ENVIRONMENT, ExitCode.IMAGE])
def test_every_case_of_a_refused_run_says_why(code: ExitCode) -> None:
    result = judged(PLAN, [], host=[RunRefused(exit_code=code, reason="no such thing; get one")])
    assert result.exit_code == code
    assert {case.status for case in result.cases} == {Status.ENVIRONMENT}
    assert {case.reason for case in result.cases} == {"not run: no such thing; get one"}
    assert "o such thing; get one" in verdict_sentence(result)
    tree = etree.fromstring(to_junit(result))
    assert len(tree.findall(".//testcase/error[@type='environment']")) == 2
    assert len(tree.findall(".//testcase/error[@type='image']")) == (code is ExitCode.IMAGE)


def test_a_run_that_was_refused_and_yet_ran_is_incomplete() -> None:
    refused = RunRefused(exit_code=ExitCode.ENVIRONMENT, reason="no")
    assert judged(PLAN, GOOD, host=[refused]).exit_code == ExitCode.INCOMPLETE
    assert judged(PLAN, GOOD, host=[RUNTIME_STARTED, refused, GOOD_END]).exit_code == ExitCode.INCOMPLETE


def test_the_worker_cannot_speak_for_the_host() -> None:
    told = [*GOOD, MachineLeft(left=())]
    assert judged(PLAN, told).exit_code == ExitCode.INCOMPLETE


def test_what_was_found_and_left_is_a_warning_and_makes_nothing_red() -> None:
    found = MachineFound(
        findings=(
            Finding(
                check="memory", severity=Severity.WARN, what="1 GiB is used", why="it is missing", remedy="free it"
            ),
            Finding(check="clock", severity=Severity.OK, what="sane"),
        )
    )
    left = MachineLeft(left=("process 7 python on GPU 0",))
    result = judged(PLAN, GOOD, host=[found, RUNTIME_STARTED, GOOD_END, left])
    assert result.exit_code == ExitCode.CONFORMS
    assert result.warnings == (
        "memory: 1 GiB is used; it is missing; free it",
        "left on the machine by this run: process 7 python on GPU 0",
    )
