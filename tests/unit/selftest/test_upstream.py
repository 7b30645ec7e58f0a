import math

import pytest

from kit.oracles.limits import context
from kit.results.model import CaseResult, Status
from kit.selftest.upstream import RULES, alarms_of, said_of, together
from kit.upstream_names import COSINE, DECODE, HALF_SQUARE, MAX_ABS, PREFILL, ROUGE_L

BY_NAME = {rule.name: rule for rule in RULES}


def a_case(**values: float) -> CaseResult:
    measurements = tuple(context(name, value, "1") for name, value in values.items())
    return CaseResult(id="b/m/a@f", battery="b", session="s", status=Status.PASSED, measurements=measurements)


@pytest.mark.parametrize(
    ("rule", "kept", "broken"),
    [
        ("½Δ²", {HALF_SQUARE: 5e-3}, {HALF_SQUARE: 5.1e-3}),
        ("top-5 prefill 0.1", {PREFILL: 0.09}, {PREFILL: 0.1}),
        ("top-5 prefill 0.3", {PREFILL: 0.29}, {PREFILL: 0.3}),
        ("top-5 decode 0.1", {DECODE: 0.09}, {DECODE: 0.1}),
        ("ROUGE-L 1", {ROUGE_L: 1.0}, {ROUGE_L: 0.99}),
        ("ROUGE-L 0.9", {ROUGE_L: 0.9}, {ROUGE_L: 0.89}),
        ("kernels", {COSINE: 0.991, MAX_ABS: 3e-2}, {COSINE: 0.99, MAX_ABS: 1e-3}),
        ("kernels", {COSINE: 0.999, MAX_ABS: 3e-2}, {COSINE: 0.999, MAX_ABS: 3.1e-2}),
    ],
)
def test_a_rule_has_upstreams_limit_and_never_passes_nan(
    rule: str, kept: dict[str, float], broken: dict[str, float]
) -> None:
    assert BY_NAME[rule].of(a_case(**kept).measurements) is True
    assert BY_NAME[rule].of(a_case(**broken).measurements) is False
    assert BY_NAME[rule].of(a_case(**dict.fromkeys(kept, math.nan)).measurements) is False
    assert BY_NAME[rule].of(a_case(other=1.0).measurements) is None


def test_programs_of_an_adapters_life_are_judged_by_the_mean_over_all_answers() -> None:
    assert BY_NAME["½Δ²"].of(a_case(mean_half_square=1.0).measurements) is False
    assert BY_NAME["½Δ²"].of(a_case(mean_half_square=1.0, **{HALF_SQUARE: 1e-6}).measurements) is True


def test_one_case_that_does_not_pass_is_enough() -> None:
    said = said_of([a_case(**{HALF_SQUARE: 1e-6, PREFILL: 0.2}), a_case(**{HALF_SQUARE: 1e-2})])
    assert said["½Δ²"] == "caught"
    assert (said["top-5 prefill 0.1"], said["top-5 prefill 0.3"]) == ("caught", "passed")
    assert said["ROUGE-L 1"] == "cannot judge"
    assert together(said.values()) == "caught"
    assert together(["passed", "cannot judge"]) == "passed"
    assert together(["cannot judge"]) == "cannot judge"


def test_upstreams_own_false_alarms_are_counted() -> None:
    counted = alarms_of([a_case(**{ROUGE_L: 0.95}), a_case(**{ROUGE_L: 1.0}), a_case(other=0.0)])
    assert (counted["ROUGE-L 1"], counted["ROUGE-L 0.9"], counted["½Δ²"]) == ((1, 2), (0, 2), (0, 0))
