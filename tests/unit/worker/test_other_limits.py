"""A limit of the profile goes with the case to the worker, and comes back in the measurement."""

from pathlib import Path

from kit.check_spec import NullCheck
from kit.host.local_runtime import LocalRuntime
from kit.measurement import LimitSource
from kit.plan import OtherLimit
from kit.results.model import Status
from tests.rehearsal import null_plan, rehearse, write_plan


def test_the_worker_holds_a_case_to_the_limit_of_the_profile(tmp_path: Path) -> None:
    """The second case measures what is outside its own limit; the third has no such measurement."""
    plan = null_plan([NullCheck(act="pass"), NullCheck(act="fail"), NullCheck(act="pass")])
    other = OtherLimit(measurement="null", limit=1e6, reason="this hardware may do so", link="https://example.org/1")
    absent = other.model_copy(update={"measurement": "rouge_l"})
    first, second, third = plan.cases
    cases = (first, second.model_copy(update={"limits": (other,)}), third.model_copy(update={"limits": (absent,)}))
    plan = plan.model_copy(update={"cases": cases})
    folder = write_plan(plan, tmp_path / "run")
    result = rehearse(plan, LocalRuntime(folder, tmp_path), folder).result
    assert [case.status for case in result.cases] == [Status.PASSED, Status.PASSED, Status.CRASHED]
    sources = [[m.source for m in case.measurements if m.name == "null"] for case in result.cases[:2]]
    assert sources == [[LimitSource.EXACT], [LimitSource.PROFILE]]
    assert "the profile has a limit for rouge_l" in result.cases[2].reason
