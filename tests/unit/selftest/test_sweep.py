import itertools
from typing import cast

import pytest

from kit.check_spec import NullCheck
from kit.checks.outcome import CheckResult
from kit.errors import UsageFault
from kit.faults.catalogue import FAULTS, MARK, parse_fault
from kit.faults.kind import FaultKind
from kit.faults.switch import SwitchedSubject
from kit.oracles.limits import context, peer_max_abs
from kit.plan import Case, InjectedFault, SGLangSession
from kit.profile import find_profile
from kit.results.model import CaseResult, Status
from kit.selftest.choice import Choice, selftest_plan
from kit.selftest.sweep import kinds_to_sweep, ladder, sweep_outcome
from kit.subjects import Subject
from kit.waiver import load_waivers
from kit.worker import trial

CPU = find_profile("cpu")
STRONG = [kind for kind in FAULTS.values() if kind.reported is not None]


@pytest.mark.parametrize("kind", STRONG, ids=lambda kind: kind.name)
def test_a_ladder_leads_from_almost_nothing_to_the_fault_as_reported(kind: FaultKind) -> None:
    steps = ladder(kind)
    assert kind.reported is not None and kind.neutral is not None
    assert steps[-1] == pytest.approx(kind.reported)
    falls = kind.neutral_is_infinite or kind.reported < kind.neutral
    assert list(steps) == sorted(set(steps), reverse=falls)
    for strength in steps:
        assert parse_fault(f"{kind.name}={strength!r}").strength == strength
    assert len(steps) > 20


class Answers:
    """A subject whose error is its fault's deviation times `gain`, and `noise` without one."""

    def __init__(self, gain: float, noise: float = 0.0) -> None:
        self.gain, self.noise, self.asked = gain, noise, 0
        self.faults: tuple[InjectedFault, ...] = ()

    def under(self, faults: tuple[InjectedFault, ...], edition: int = 0) -> Subject:
        self.faults, self.asked = faults, self.asked + 1
        return cast("Subject", self)

    @property
    def error(self) -> float:
        return self.noise + sum(abs(fault.strength - 1.0) for fault in self.faults) * self.gain


def swept(monkeypatch: pytest.MonkeyPatch, answers: Answers) -> CaseResult:
    monkeypatch.setattr(
        trial,
        "run_check",
        lambda spec, subject: CheckResult(
            (peer_max_abs("max_abs_error", subject.error, 0.005, "float32", 1.0, "nat"),)
        ),
    )
    kind = FAULTS["adapter-scaling"]
    case = Case(
        id=f"lora-logprob/m/a{MARK}sweep:adapter-scaling:float32",
        session="s",
        spec=NullCheck(act="pass"),
        faults=(InjectedFault(name=kind.name, strength=2.0),),
        sweep=ladder(kind),
    )
    result = trial.Trials(cast("SwitchedSubject", answers)).answer(case)
    green = all(m.within for m in result.measurements)
    return CaseResult(
        id=case.id,
        battery="lora-logprob",
        session="s",
        status=Status.PASSED if green else Status.FAILED,
        measurements=result.measurements,
        evidence=result.evidence,
    )


def test_the_smallest_strength_that_is_red_is_found_with_few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(gain=1.0)  # the limit is 0.01
    result = swept(monkeypatch, answers)
    found = sweep_outcome(result)
    assert (found.fault, found.dtype, found.case, found.status) == (
        "adapter-scaling",
        "float32",
        "lora-logprob/m/a",
        "passed",
    )
    assert found.deviation == pytest.approx(0.015)
    assert found.below == pytest.approx(1.01)
    assert found.margin == pytest.approx(1.5, rel=0.01)
    assert (found.measurement, found.free) == ("max_abs_error", 0.0)
    assert answers.asked < 12


def test_what_is_never_seen_or_red_without_a_fault_is_no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    unseen = sweep_outcome(swept(monkeypatch, Answers(gain=1e-6)))
    assert (unseen.status, unseen.smallest) == ("failed", None)
    always = sweep_outcome(swept(monkeypatch, Answers(gain=0.0, noise=1.0)))
    assert always.status == "failed"


def test_a_crash_leaves_nothing_but_its_status() -> None:
    case = CaseResult(
        id="lora-logprob/m/a@sweep:adapter-scaling:float32",
        battery="lora-logprob",
        session="s",
        status=Status.CRASHED,
        measurements=(context("other", 1.0, "1"),),
    )
    found = sweep_outcome(case)
    assert (found.status, found.smallest, found.answers) == ("crashed", None, 0)


def test_two_cases_of_each_dtype_are_swept() -> None:
    plan = selftest_plan(CPU, load_waivers(), Choice(rounds=0, sweeps=("adapter-scaling",)), "run")
    dtypes = [case.id.rpartition(":")[2] for case in plan.cases]
    assert {dtype: len(list(group)) for dtype, group in itertools.groupby(sorted(dtypes))} == {
        "bfloat16": 2,
        "float16": 2,
        "float32": 2,
    }
    sessions = {session.id: session.spec for session in plan.sessions}
    for case in plan.cases:
        spec = sessions[case.session]
        assert isinstance(spec, SGLangSession)
        assert case.id.endswith(spec.dtype)
        assert case.sweep == ladder(FAULTS["adapter-scaling"])


def test_a_fault_without_strength_cannot_be_swept() -> None:
    with pytest.raises(UsageFault, match="'adapter-missing' has no strength to sweep"):
        kinds_to_sweep(["adapter-missing"])
    with pytest.raises(UsageFault, match="unknown fault"):
        kinds_to_sweep(["adapter-scalin"])
    assert kinds_to_sweep(["all"]) == STRONG
