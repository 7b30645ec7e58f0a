import json

import pytest

from kit.measurement import Comparison, LimitSource, Measurement
from kit.plan import InjectedFault
from kit.results.model import CaseResult, Status
from kit.results.report.hints import Hints
from kit.selftest.comparison import TOTAL, comparison
from kit.selftest.outcome import SelftestResult, outcome_of
from kit.selftest.report import selftest_html, sentence
from tests.unit.results.test_junit import a_result


def measured(value: float, name: str = "mean_half_square", limit: float = 1e-6) -> Measurement:
    return Measurement(
        name=name, value=value, unit="nat²", comparison=Comparison.AT_MOST, limit=limit, source=LimitSource.PEER
    )


def a_case(case_id: str, status: Status, *measurements: Measurement) -> CaseResult:
    battery = case_id.split("/")[0]
    return CaseResult(
        id=case_id, battery=battery, session="s", status=status, seconds=2.0, measurements=measurements, reason="why"
    )


def outcome(*cases: CaseResult) -> SelftestResult:
    return outcome_of(a_result(*cases))


@pytest.fixture
def found() -> SelftestResult:
    return outcome(
        a_case("lora-logprob/m/a@adapter-missing", Status.FAILED, measured(1e-3), measured(1e-5, "other")),
        a_case("lora-logprob/m/b@adapter-missing", Status.PASSED, measured(1e-7)),
        a_case("multi-lora/m/c@adapter-missing", Status.FAILED, measured(2e-2)),
        a_case("multi-lora/m/c@batch-rows-permuted", Status.PASSED, measured(1e-7)),
        a_case("lora-logprob/m/a@batch-slot-zero", Status.MISSING),
        a_case("process/null/k@process-killed", Status.TIMEOUT),
        a_case("process/null/h@process-hangs", Status.TIMEOUT),
        a_case("lora-logprob/m/a@0", Status.PASSED, measured(1e-7)),
        a_case("lora-logprob/m/a@1", Status.FAILED, measured(1e-5)),
    )


def test_a_fault_is_caught_by_the_cases_that_are_red_the_clearest_first(found: SelftestResult) -> None:
    first = found.faults[0]
    assert (first.fault, first.verdict) == ("adapter-missing", "caught")
    assert [seen.case for seen in first.caught] == ["multi-lora/m/c", "lora-logprob/m/a"]
    assert first.caught[0].margin == pytest.approx(1e-6 / 2e-2)
    assert first.batteries == {"lora-logprob": True, "multi-lora": True}
    assert first.asked == ("lora-logprob/m/a", "lora-logprob/m/b", "multi-lora/m/c")


def test_upstreams_rules_judge_the_same_answers(found: SelftestResult) -> None:
    by_name = {fault.name: fault.upstream for fault in found.faults}
    assert by_name["adapter-missing"]["½Δ²"] == "caught"
    assert by_name["batch-rows-permuted"]["½Δ²"] == "passed"
    assert set(by_name["process-killed"].values()) == {"cannot judge"}
    assert found.upstream_alarms["½Δ²"] == (0, 2)


def test_faults_are_counted_by_the_part_that_is_at_fault(found: SelftestResult) -> None:
    rows = {row.where: row for row in comparison(found)}
    assert (rows["adapter weights"].kit, rows["adapter weights"].faults) == (1, 1)
    assert rows["adapter weights"].rules["½Δ²"] == rows["adapter weights"].upstream == (1, 1)
    assert (rows["request routing"].kit, rows["request routing"].upstream) == (0, (0, 1))
    assert rows["process"].upstream == (0, 0)
    assert (rows[TOTAL].kit, rows[TOTAL].faults, rows[TOTAL].upstream) == (2, 4, (1, 2))


def test_what_was_green_is_not_caught_and_what_gave_no_verdict_was_not_asked(found: SelftestResult) -> None:
    verdicts = {fault.name: fault.verdict for fault in found.faults}
    assert verdicts["batch-rows-permuted"] == "not caught"
    assert verdicts["batch-slot-zero"] == "not asked"


def test_a_death_that_is_taken_for_something_else_is_not_caught(found: SelftestResult) -> None:
    verdicts = {fault.name: fault.verdict for fault in found.faults}
    assert (verdicts["process-killed"], verdicts["process-hangs"]) == ("not caught", "caught")


def test_a_red_case_without_a_fault_is_a_false_alarm(found: SelftestResult) -> None:
    assert found.quiet == 1
    assert found.alarms == ("lora-logprob/m/a@1: failed: why",)
    assert not found.good


def test_a_case_without_a_verdict_is_no_alarm_and_not_good() -> None:
    found = outcome(
        a_case("lora-logprob/m/a@0", Status.PASSED, measured(1e-7)), a_case("lora-logprob/m/a@1", Status.MISSING)
    )
    assert (found.alarms, found.unanswered, found.rounds, found.good) == ((), 1, 1, False)
    assert "1 fault-free cases gave no verdict" in sentence(found)


def test_all_caught_and_no_alarm_is_good() -> None:
    found = outcome(
        a_case("lora-logprob/m/a@adapter-missing", Status.FAILED, measured(1e-3)),
        a_case("lora-logprob/m/a@0", Status.PASSED, measured(1e-7)),
    )
    assert found.good
    assert sentence(found).startswith(
        "caught 1 of 1 faults; 0 false alarms in 1 fault-free cases of 1 rounds; upstream's rules see 0 of 1"
    )


def test_json_and_html_tell_it_all(found: SelftestResult) -> None:
    assert SelftestResult.model_validate(json.loads(found.model_dump_json())) == found
    page = selftest_html(found).decode()
    assert page.count("<tr>") == 1 + len(found.faults) + 1 + len(comparison(found)) + 1
    for text in ("adapter-missing", "not caught", "multi-lora/m/c", "lora-logprob/m/a@1: failed: why", "default-src"):
        assert text in page


@pytest.mark.parametrize(
    ("mark", "asked"),
    [
        ("adapter-scaling=1.1", "--fault adapter-scaling=1.1 --rounds 0"),
        ("2", "--fault none --rounds 3"),
        ("sweep:adapter-scaling:bfloat16", "--sweep adapter-scaling --rounds 0"),
    ],
)
def test_a_red_case_of_a_self_test_tells_how_to_ask_it_alone(mark: str, asked: str) -> None:
    case = a_case(f"lora-logprob/m/a@{mark}", Status.FAILED, measured(1e-3))
    hints = Hints(a_result(case, faults=(InjectedFault(name="adapter-scaling", strength=1.1),)))
    assert hints.command(case) == f"kit selftest --profile cpu --runtime docker --case lora-logprob/m/a {asked}"
