"""Any result and any bytes in streams and logs: what must hold of the files that are made from them."""

import json
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.errors import ExitCode
from kit.events import RuntimeEnded, Trouble, parse_lines
from kit.results.bundle import pack, unpack_bytes
from kit.results.model import Mode, Problem, RunResult, SessionResult
from kit.results.scrub import Scrubber
from tests.unit.results.streams import RUNTIME_STARTED, judged
from tests.unit.results.test_deaths import STREAM, planned
from tests.unit.results.test_junit import ANY_TEXT, CASE, a_result, parse

LOG = st.binary(max_size=200).map(lambda data: data.decode("utf-8", "surrogateescape")) | ANY_TEXT
RESULT = st.builds(
    lambda cases, facts, tail, problems, mode: a_result(
        *cases,
        mode=mode,
        problems=[Problem(exit_code=ExitCode.INCOMPLETE, text=text) for text in problems],
        worker=facts,
        host={"hostname": tail, **facts},
        sessions=(SessionResult(id="s", ended=True, log="logs/s.log", log_tail=tail, facts=facts),),
        warnings=tuple(facts),
    ),
    cases=st.lists(CASE, max_size=4, unique_by=lambda case: case.id),
    facts=st.dictionaries(ANY_TEXT, LOG, max_size=3),
    tail=LOG,
    problems=st.lists(ANY_TEXT, max_size=2),
    mode=st.sampled_from(Mode),
)
LINES = STREAM.split(b"\n")
STREAMS = st.lists(st.sampled_from(LINES) | st.binary(max_size=80), max_size=25).map(b"\n".join) | st.integers(
    0, len(STREAM)
).map(lambda cut: STREAM[:cut])


def check_result(result: RunResult) -> None:
    """JUnit for lxml and junitparser with counts that agree, and a result.json that says the same when read back."""
    root = parse(result)
    extra = root.find("testsuite[@name='run']")
    tests = sum(int(suite.get("tests")) for suite in root) - (
        len(extra.findall("testcase")) if extra is not None else 0
    )
    assert tests == len(result.cases)
    red = int(root.get("failures")) + int(root.get("errors"))
    assert (red > 0) == (result.exit_code != 0)
    again = RunResult.model_validate_json(result.to_json())
    assert json.loads(again.to_json()) == json.loads(result.to_json())


def check_streams(stream: bytes, log: bytes) -> None:
    """Any bytes as ``events.jsonl``: every planned case in the reports. Any bytes as a log: the bundle gives them back."""
    events, damaged = parse_lines(stream.split(b"\n"))
    end = RuntimeEnded(trouble=Trouble.CRASHED, reason=log.decode("utf-8", "surrogateescape"))
    result = judged(planned(), events, host=[RUNTIME_STARTED, end], damaged=damaged)
    check_result(result)
    assert result.exit_code != 0
    files = {"events.jsonl": stream, "logs/s.log": log}
    assert unpack_bytes(pack(files, "kit-run", 1), "x") == files
    scrub = Scrubber(["/data/people/annabel"], ["annabel"], [])
    assert scrub(scrub(log)) == scrub(log)


def fuzz(examples: int) -> tuple[int, int]:
    """Run both checks on so many examples altogether; gives how many each had. Raises where one does not hold."""
    counts = [0, 0]
    options = settings(
        max_examples=examples // 2, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )

    def counted(index: int, check: Callable[..., None]) -> Callable[..., None]:
        def run(*values: object) -> None:
            counts[index] += 1
            check(*values)

        return run

    results, streams = counted(0, check_result), counted(1, check_streams)

    @options
    @given(RESULT)
    def any_result(result: RunResult) -> None:
        results(result)

    @options
    @given(STREAMS, st.binary(max_size=300))
    def any_stream(stream: bytes, log: bytes) -> None:
        streams(stream, log)

    any_result()
    any_stream()
    return counts[0], counts[1]
