from pathlib import Path

import pytest

from kit.errors import EnvironmentFault
from kit.faults.container_catalogue import CONTAINER_FAULTS
from kit.faults.report_catalogue import REPORT_FAULTS
from kit.host.run import Request, prepare
from kit.selftest.beside import BesideThePlan, beside_the_plan
from kit.selftest.choice import Choice
from kit.selftest.outcome import Beside, SelftestResult, outcome_of
from kit.selftest.prepare import selftest_of
from kit.selftest.report import left_out, selftest_html, sentence
from tests.jobs import kit
from tests.unit.results.test_junit import a_result

NO_ENGINE = "unix:///nonexistent/docker.sock"


def beside(*faults: str, profile: str = "cpu") -> BesideThePlan:
    choice = Choice(faults)
    return beside_the_plan(selftest_of(prepare(Request(profile=profile)), choice), choice)


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NO_ENGINE)


def test_without_an_engine_a_named_fault_of_containers_is_refused_and_all_are_told() -> None:
    with pytest.raises(EnvironmentFault, match="no container engine answers at DOCKER_HOST"):
        beside("container-killed").refuse_what_cannot_be_asked()
    beside("all").refuse_what_cannot_be_asked()
    told = list(beside("all").told())
    for kind in CONTAINER_FAULTS:
        assert any(line.startswith(f"not asked: {kind.name} (no container engine answers") for line in told)
    for kind in REPORT_FAULTS:
        assert f"kit verify  {kind.name}" in told


def test_an_engine_is_only_looked_for_where_a_container_is_asked_about() -> None:
    asked = beside("adapter-missing", "report-event-lost")
    assert (asked.launches, asked.engine, asked.no_engine) == ((), None, None)
    assert [kind.name for kind in asked.records] == ["report-event-lost"]


def test_what_the_plan_cannot_ask_has_its_reason() -> None:
    lacks = beside("all").plan_lacks
    assert lacks["adapter-expert-dropped"] == "no case of profile cpu is about it"
    assert "profile of several GPUs" in lacks["rank-silent"]
    assert "batch-slot-zero" not in lacks


def test_what_was_left_out_stands_in_the_result_by_reason() -> None:
    found = outcome_of(
        a_result(), Beside(quiet=4, alarms=("odd",), left_out={"a": "why", "b": "why", "c": "so"}, seconds=2.0)
    )
    assert left_out(found) == {"why": ["a", "b"], "so": ["c"]}
    assert (found.quiet, found.alarms, found.good) == (4, ("odd",), False)
    assert found.seconds == outcome_of(a_result()).seconds + 2.0
    page = selftest_html(found).decode()
    assert "<code>a</code>, <code>b</code>: why" in page


def test_a_named_fault_that_finds_nothing_to_alter_was_not_asked(tmp_path: Path) -> None:
    """A run of one green case has no red status to hide."""
    chosen = ("--fault", "report-status-altered", "--fault", "report-event-lost")
    done = kit("selftest", "--output", str(tmp_path / "out"), *chosen, DOCKER_HOST=NO_ENGINE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "caught 1 of 2 faults" in done.stdout
    found = SelftestResult.model_validate_json((tmp_path / "out" / "selftest.json").read_bytes())
    assert {outcome.name: outcome.verdict for outcome in found.faults} == {
        "report-event-lost": "caught",
        "report-status-altered": "not asked",
    }
    (unasked,) = [outcome for outcome in found.faults if not outcome.asked]
    assert unasked.missing == ("the record of this run has nothing that it would alter",)


def test_a_self_test_that_is_stopped_is_not_good() -> None:
    whole, stopped = (outcome_of(a_result(), Beside(quiet=1, stopped=way)) for way in (False, True))
    assert (whole.good, stopped.good) == (True, False)
    assert sentence(stopped).startswith("stopped before all was asked: caught 0 of 0 faults")


def test_a_named_fault_of_containers_without_an_engine_is_one_line(tmp_path: Path) -> None:
    done = kit("selftest", "--output", str(tmp_path / "out"), "--fault", "container-killed", DOCKER_HOST=NO_ENGINE)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1 and "no container engine answers" in done.stderr
    assert not (tmp_path / "out").exists()
