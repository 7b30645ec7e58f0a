"""`kit waivers check`: expired fails; what matches nothing, or too much, is told."""

from datetime import date

import pytest

from kit.cli import main
from kit.host.waiver_check import Concern, check_waivers
from kit.offline_profile import offline_profiles
from kit.profile import find_profile, load_profiles
from kit.waiver import Expected, Waiver, Waivers, load_waivers

TODAY = date(2026, 12, 1)
SOUND = {
    "id": "known-fault",
    "case": "kernels/triton-grouped-decode/*d576*",
    "architecture": "sm_90",
    "versions": {"triton": ">=3.6,<4"},
    "reason": "Triton 3.6 returns NaN for one shape",
    "link": "https://example.org/issues/1",
    "opened": date(2026, 11, 30),
    "expires": date(2027, 1, 31),
}


def concerns(today: date = TODAY, **changes: object) -> dict[Concern, str]:
    waivers = Waivers(waiver=(Waiver.model_validate(SOUND | changes),))
    profile = find_profile("h200").model_copy(update={"waivers": tuple(waiver.id for waiver in waivers.waiver)})
    return {finding.concern: finding.text for finding in check_waivers(waivers, [profile], today)}


def test_a_sound_waiver_is_no_remark() -> None:
    assert concerns() == {}


def test_a_waiver_that_no_profile_names_excuses_nothing() -> None:
    waivers = Waivers(waiver=(Waiver.model_validate(SOUND),))
    (finding,) = check_waivers(waivers, [find_profile("h200")], TODAY)
    assert finding.concern is Concern.UNNAMED
    assert "no profile for sm_90 has it in its key 'waivers'" in finding.text


def test_expired_and_soon() -> None:
    assert set(concerns(date(2027, 2, 1))) == {Concern.EXPIRED}
    assert set(concerns(date(2027, 1, 31))) == {Concern.EXPIRES_SOON}
    assert "in 0 days" in concerns(date(2027, 1, 31))[Concern.EXPIRES_SOON]


def test_not_open_yet() -> None:
    assert "from 2026-11-30" in concerns(date(2026, 11, 29))[Concern.NOT_OPEN]
    assert concerns(date(2026, 11, 30)) == {}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"architecture": "gfx942"}, "no profile here is for gfx942"),
        ({"case": "kernels/wave-prefill/*"}, "H200-1gpu plans no case 'kernels/wave-prefill/*'"),
    ],
)
def test_unmatched(changes: dict[str, object], says: str) -> None:
    assert concerns(**changes) == {Concern.UNMATCHED: says}


def test_each_of_several_cases_must_be_planned() -> None:
    several = ("kernels/triton-grouped-decode/*d576*", "kernels/wave-prefill/*")
    assert concerns(case=several) == {Concern.UNMATCHED: "H200-1gpu plans no case 'kernels/wave-prefill/*'"}


def test_several_cases_may_not_be_the_whole_battery() -> None:
    assert "whole battery kernels" in concerns(case=("kernels/[!t]*", "kernels/t*"))[Concern.OVER_BROAD]


@pytest.mark.parametrize("case", ["kernels/*", "kernels/**", "kernels/*/*", "kernels/[a-z]*"])
def test_a_whole_battery_is_over_broad(case: str) -> None:
    assert "whole battery kernels" in concerns(case=case)[Concern.OVER_BROAD]


def test_a_reason_about_one_version_needs_bounds() -> None:
    assert "Triton 3" in concerns(versions={})[Concern.OVER_BROAD]
    assert concerns(versions={}, reason="wrong on this chip, whatever the release") == {}


def test_every_architecture_is_over_broad_unless_versions_and_a_range_narrow_it() -> None:
    assert "every architecture" in concerns(architecture="*")[Concern.OVER_BROAD]
    known = (Expected(measurement="wrong_tokens", at_least=2, at_most=2),)
    assert (
        "every architecture"
        in concerns(architecture="*", versions={}, expected=known, reason="wrong on every chip, whatever the release")[
            Concern.OVER_BROAD
        ]
    )
    assert concerns(architecture="*", expected=known) == {}


def test_the_waivers_of_this_kit_only_wait_for_their_batteries() -> None:
    profiles = list(load_profiles().values())
    findings = check_waivers(load_waivers(), profiles + offline_profiles(profiles), date(2026, 12, 1))
    assert {finding.concern for finding in findings} <= {Concern.UNMATCHED}


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["kit", "waivers", "check", "--profile", "h200"])
    expired = Waivers(
        waiver=(Waiver.model_validate(SOUND | {"opened": date(2026, 1, 1), "expires": date(2026, 2, 1)}),)
    )
    for waivers, code, says in (
        (Waivers(), 0, "0 waivers, 0 expired"),
        (expired, 1, "known-fault: expired: on 2026-02-01"),
    ):
        monkeypatch.setattr("kit.waiver.load_waivers", lambda waivers=waivers: waivers)
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == code
        assert says in capsys.readouterr().out
