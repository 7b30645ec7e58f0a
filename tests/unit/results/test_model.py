"""The result model: exit codes, what a file may say, and the round trip through JSON."""

import itertools
import json
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from kit.errors import ExitCode, UsageFault
from kit.events import CaseFinished, CaseStarted, SessionEnded, Trouble
from kit.measurement import Measurement
from kit.results.model import CaseResult, Mode, Problem, RunResult, Status, exit_code_of, load_result
from tests.unit.results.streams import KERNEL, LORA, case_events, judged, one_case, plan, session_events, waiver, worker

# The table of docs/architecture.md; unexpected passes are red in qualify only.
CODE = {
    Status.PASSED: 0,
    Status.FAILED: 1,
    Status.CRASHED: 5,
    Status.TIMEOUT: 5,
    Status.MISSING: 5,
    Status.ENVIRONMENT: 3,
    Status.SKIPPED: 0,
    Status.WAIVED: 0,
    Status.UNEXPECTED_PASS: 0,
}
FIRST_WINS = [5, 3, 1, 0]


def a_case(status: Status) -> CaseResult:
    return CaseResult(id=f"kernels/triton/{status}", battery="kernels", session="s", status=status)


@pytest.mark.parametrize("status", list(Status))
def test_each_status_beside_a_pass(status: Status) -> None:
    cases = [a_case(Status.PASSED), a_case(status)]
    assert exit_code_of(Mode.CI, cases, [], False) == CODE[status]
    in_qualify = 1 if status is Status.UNEXPECTED_PASS else CODE[status]
    assert exit_code_of(Mode.QUALIFY, cases, [], False) == in_qualify


@pytest.mark.parametrize("pair", list(itertools.combinations(Status, 2)))
def test_of_two_statuses_the_less_certain_decides(pair: tuple[Status, Status]) -> None:
    cases = [a_case(Status.PASSED), *map(a_case, pair)]
    expected = min((CODE[status] for status in pair), key=FIRST_WINS.index)
    assert exit_code_of(Mode.CI, cases, [], False) == expected
    assert exit_code_of(Mode.CI, list(reversed(cases)), [], False) == expected
    assert exit_code_of(Mode.CI, cases, [], True) == 130


@pytest.mark.parametrize("code", [ExitCode.INCOMPLETE, ExitCode.ENVIRONMENT, ExitCode.NOT_CONFORMING])
@pytest.mark.parametrize("status", [Status.PASSED, Status.FAILED, Status.CRASHED, Status.ENVIRONMENT])
def test_a_problem_counts_like_a_case(code: ExitCode, status: Status) -> None:
    problem = Problem(exit_code=code, text="a problem")
    expected = min((CODE[status], int(code)), key=FIRST_WINS.index)
    assert exit_code_of(Mode.CI, [a_case(status)], [problem], False) == expected


@pytest.mark.parametrize("cases", [[], [Status.SKIPPED], [Status.SKIPPED, Status.SKIPPED]])
def test_a_run_that_ran_nothing_is_incomplete(cases: list[Status]) -> None:
    assert exit_code_of(Mode.CI, [a_case(status) for status in cases], [], False) == 5


@pytest.mark.parametrize("code", [ExitCode.CONFORMS, ExitCode.USAGE, ExitCode.INTERRUPTED])
def test_a_problem_asks_for_no_other_code(code: ExitCode) -> None:
    with pytest.raises(ValidationError):
        Problem(exit_code=code, text="a problem")


def test_round_trip() -> None:
    _, result = one_case(0.5, 2.0, waivers=[waiver()])
    assert RunResult.model_validate_json(result.to_json()) == result


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_round_trip_of_what_json_has_no_number_for(value: float) -> None:
    _, result = one_case(0.5, value)
    data = result.to_json()
    json.loads(data, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    again = RunResult.model_validate_json(data).cases[0].measurements[1]
    assert again.value == value or (math.isnan(again.value) and math.isnan(value))
    assert RunResult.model_validate_json(data).to_json() == data


def test_evidence_survives() -> None:
    evidence = {"position": 7, "rows": [1, 2.5, None], "text": "½Δ² \x1b[31m \u2028", "worst": {"head": 3}}
    event = CaseFinished(
        session="s", case=KERNEL, seconds=1, measurements=(Measurement(name="n", value=1),), evidence=evidence
    )
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", [CaseStarted(session="s", case=KERNEL), event])))
    assert RunResult.model_validate_json(result.to_json()).cases[0].evidence == evidence


def test_lone_surrogates_do_not_cost_the_result() -> None:
    end = SessionEnded(session="s", trouble=Trouble.CRASHED, reason="file \udc80", log_tail="\ud800 tail")
    result = judged(plan({"s": [KERNEL]}), worker(session_events("s", end=end)))
    session = RunResult.model_validate_json(result.to_json()).sessions[0]
    assert (session.reason, session.log_tail) == ("file \\udc80", "\\ud800 tail")


def test_counts_add_up() -> None:
    events = worker(session_events("s", case_events("s", LORA, 0.1), case_events("s", KERNEL, 9.0)))
    result = judged(plan({"s": [LORA, KERNEL]}), events)
    assert result.counts == {Status.PASSED: 1, Status.FAILED: 1}


def edited(path: Path, key: str, value: object) -> Path:
    _, result = one_case(2.0)
    data = json.loads(result.to_json())
    data[key] = value
    path.write_text(json.dumps(data))
    return path


def test_a_written_result_is_read_back(tmp_path: Path) -> None:
    _, result = one_case(2.0)
    path = tmp_path / "result.json"
    path.write_bytes(result.to_json())
    assert load_result(path) == result


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("exit_code", 0, "exit_code is 0, but the cases and problems give 1"),
        ("cases", [], "give 5"),
        ("schema_version", 2, "schema_version"),
        ("surprise", 1, "surprise"),
    ],
)
def test_an_edited_result_is_refused(tmp_path: Path, key: str, value: object, named: str) -> None:
    with pytest.raises(UsageFault, match=named):
        load_result(edited(tmp_path / "result.json", key, value))


def test_no_result_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="cannot be read"):
        load_result(tmp_path / "result.json")
    (tmp_path / "result.json").write_bytes(b"{\xff")
    with pytest.raises(UsageFault, match="not a result"):
        load_result(tmp_path / "result.json")
