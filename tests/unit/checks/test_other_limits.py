"""A limit of the profile stands in for the check's own, says so, and never goes unused."""

from pathlib import Path

import pytest

from kit.checks.outcome import CheckResult, with_limits
from kit.errors import UsageFault
from kit.measurement import Comparison, LimitSource, Measurement
from kit.offline_profile import offline_profiles
from kit.plan import OtherLimit
from kit.profile import ProfileLimit, find_profile, load_profiles
from kit.results.verify import verify
from kit.waiver import load_waivers
from tests.unit.results.runs import Staged, measured

REASON, LINK = "One word differs on this hardware.", "https://example.org/1"
CASE = "lora-logprob/tiny-qwen3/base"


def judged(name: str, value: float, limit: float, comparison: Comparison = Comparison.AT_LEAST) -> Measurement:
    return Measurement(name=name, value=value, comparison=comparison, limit=limit, source=LimitSource.UPSTREAM)


def other(name: str, limit: float) -> OtherLimit:
    return OtherLimit(measurement=name, limit=limit, reason=REASON, link=LINK)


def test_it_stands_in_and_is_told() -> None:
    told = with_limits(
        CheckResult((judged("rouge_l", 0.9774, 1.0), judged("error", 2, 1, Comparison.AT_MOST))),
        (other("rouge_l", 0.9),),
    )
    rouge, error = told.measurements
    assert (rouge.within, rouge.limit, rouge.source, rouge.comparison) == (
        True,
        0.9,
        LimitSource.PROFILE,
        Comparison.AT_LEAST,
    )
    assert rouge.note == f"instead of 1 (upstream): {REASON} {LINK}"
    assert (error.within, error.source) == (False, LimitSource.UPSTREAM)
    assert (
        not with_limits(CheckResult((judged("rouge_l", 0.89, 1.0),)), (other("rouge_l", 0.9),)).measurements[0].within
    )


def test_without_other_limits_nothing_changes() -> None:
    result = CheckResult((judged("a", 1, 2),))
    assert with_limits(result, ()) == result


@pytest.mark.parametrize(
    "measurement",
    [
        judged("else", 1, 2),
        Measurement(name="rouge_l", value=1.0),
        Measurement(name="rouge_l", value=0, comparison=Comparison.EQUAL, limit=0, source=LimitSource.EXACT),
    ],
)
def test_a_limit_for_nothing_is_an_error(measurement: Measurement) -> None:
    """What is not judged, or is judged by being equal, has no bound that could differ."""
    with pytest.raises(ValueError, match="the profile has a limit for rouge_l"):
        with_limits(CheckResult((measurement,)), (other("rouge_l", 0.9),))


def staged(limit: float | None) -> Staged:
    """A CPU run whose profile changes a limit of one case; `limit` is what the run was held against."""
    name = "max_abs_error"
    own = ProfileLimit(case=CASE, measurement=name, limit=0.25, reason=REASON, link=LINK)
    profile = find_profile("cpu").model_copy(update={"limits": (own,)})

    def measure(case: object) -> tuple[Measurement, ...]:
        told = tuple(measured(case))
        if limit is None or getattr(case, "id", "") != CASE:
            return told
        return with_limits(CheckResult(told), (other(name, limit),)).measurements

    return Staged(profile=profile, measure=measure)


@pytest.mark.parametrize(("limit", "refused"), [(0.25, False), (0.5, True), (None, True)])
def test_verify_holds_the_run_to_the_profile(tmp_path: Path, limit: float | None, refused: bool) -> None:
    folder = tmp_path / "run"
    run = staged(limit)
    assert [case.id for case in run.plan().cases if case.limits] == [CASE]
    run.write(folder)
    told = verify(folder)
    found = [text for text in told.refusals if "the limit of the profile is 0.25" in text]
    assert bool(found) == refused, told.refusals


def test_limits_and_waivers_of_kits_profiles_are_about_something() -> None:
    """A waiver that a profile names exists and is for its architecture; a limit has its battery among the profile's."""
    waivers = {waiver.id: waiver for waiver in load_waivers().waiver}
    profiles = load_profiles().values()
    offline = {profile.architecture for profile in offline_profiles(profiles)}
    for profile in profiles:
        assert profile.waivers is not None
        load_waivers().named(profile.waivers)
        assert len(profile.waivers) == len(set(profile.waivers))
        about = {waivers[name].architecture for name in profile.waivers}
        assert about <= {"*", profile.architecture, *offline}, profile.name
        assert all(limit.case.split("/")[0] in profile.mandatory for limit in profile.limits)
    named = {name for profile in load_profiles().values() for name in profile.waivers or ()}
    assert named == set(waivers), "a waiver counts where a profile has it in its key 'waivers'"


def test_an_unknown_waiver_is_told() -> None:
    with pytest.raises(
        UsageFault, match="unknown waiver 'rocm10-wave-prefil'; did you mean 'rocm10-wave-prefill-heap-corruption'"
    ):
        load_waivers().named(("rocm10-wave-prefil",))
