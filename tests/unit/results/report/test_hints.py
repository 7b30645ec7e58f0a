from kit.results.model import Status
from kit.results.report.hints import Hints
from tests.unit.results.report.samples import case, measured, result

SAYS = "The values are those of this fault, down to rounding: its scaling doubled."
RED = measured("max_abs_error", 2.0)


def test_what_the_values_are_like_is_said_first() -> None:
    red = case("lora-logprob/m/a", Status.FAILED, RED, evidence={"explanation": {"says": SAYS}})
    assert Hints(result(red)).of(red)[0] == SAYS


def test_evidence_of_another_shape_says_nothing() -> None:
    for evidence in ({}, {"explanation": "?"}, {"explanation": {"says": 3}}, {"explanation": None}):
        red = case("lora-logprob/m/a", Status.FAILED, RED, evidence=evidence)
        assert Hints(result(red)).of(red)[0].startswith("Look where the plot leaves its limit")
