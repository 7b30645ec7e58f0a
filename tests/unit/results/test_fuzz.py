"""A few hundred of the examples of `scripts/fuzz_results.py`, which runs 20,000; and every cut of an event stream."""

import os

import pytest

from kit.events import RuntimeEnded, Trouble, parse_lines
from kit.results.junit import to_junit
from kit.results.model import Status
from tests.unit.results.fuzz import check_result, fuzz
from tests.unit.results.streams import RUNTIME_STARTED, judged
from tests.unit.results.test_deaths import STREAM, planned

EXAMPLES = int(os.environ.get("KIT_FUZZ_EXAMPLES", "300"))


def test_no_invalid_file() -> None:
    results, streams = fuzz(EXAMPLES)
    assert results + streams >= EXAMPLES


@pytest.mark.parametrize("part", range(4))
def test_every_truncation_of_the_events_gives_complete_reports(part: int) -> None:
    end = RuntimeEnded(trouble=Trouble.CRASHED, reason="SIGKILL")
    last = len(STREAM) - 2  # the last byte is a newline that nobody needs
    for cut in range(part, last, 4):
        events, damaged = parse_lines(STREAM[:cut].split(b"\n"))
        result = judged(planned(), events, host=[RUNTIME_STARTED, end], damaged=damaged)
        assert result.exit_code == 5
        assert any(case.status is not Status.PASSED for case in result.cases) or result.problems
        if cut % 16 == part:
            check_result(result)
        else:
            assert to_junit(result).count(b"<testcase ") >= len(planned().cases)
