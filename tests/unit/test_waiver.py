"""Waivers: what a file may say, which cases one covers, and until when."""

import math
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.errors import UsageFault
from kit.measurement import Comparison, LimitSource, Measurement
from kit.waiver import Expected, Waiver, Waivers, load_waivers, software_facts

ENTRY = """
[[waiver]]
id = "wave-nan"
case = "kernels/wave-grouped-decode/*"
architecture = "gfx94*"
reason = "returns NaN for one shape"
link = "https://example.org/pull/1"
opened = 2026-11-30
expires = 2027-02-28
versions = { rocm = ">=10,<11" }
"""
ROCM10 = {"rocm": "10.0.0"}


def waiver(name: str = "wave-nan", **changes: object) -> Waiver:
    given: dict[str, object] = {
        "id": name,
        "case": "kernels/wave-grouped-decode/*",
        "architecture": "gfx94*",
        "reason": "returns NaN for one shape",
        "link": "https://example.org/pull/1",
        "opened": date(2026, 11, 30),
        "expires": date(2027, 2, 28),
    }
    return Waiver.model_validate(given | changes)


def load(tmp_path: Path, text: str) -> Waivers:
    path = tmp_path / "waivers.toml"
    path.write_text(text)
    return load_waivers(path)


def test_a_file_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, ENTRY).waiver == (waiver(versions={"rocm": ">=10,<11"}),)


def test_an_empty_file_has_no_waiver(tmp_path: Path) -> None:
    assert load(tmp_path, "").waiver == ()


@pytest.mark.parametrize("key", ["id", "case", "architecture", "reason", "link", "opened", "expires"])
def test_every_key_but_the_versions_is_required(tmp_path: Path, key: str) -> None:
    text = "\n".join(line for line in ENTRY.splitlines() if not line.startswith(f"{key} ="))
    with pytest.raises(UsageFault, match=key):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("line", "wrong", "named"),
    [
        ("expires", "expires = 2027-03-01", "at most 90 days"),
        ("expires", "expires = 2026-11-29", "not before"),
        ("expires", 'expires = "soon"', "expires"),
        ("opened", "opened = 20261130", "opened"),
        ("id", 'id = "Wave NaN"', "id"),
        ("case", 'case = "*"', "names its battery"),
        ("case", 'case = "*/wave/*"', "names its battery"),
        ("case", 'case = "kernels/"', "names its battery"),
        ("case", 'case = "kernels*/wave/x"', "names its battery"),
        ("case", 'case = ["kernels/wave/x", "*/wave/x"]', "names its battery"),
        ("case", "case = []", "case"),
        ("architecture", 'architecture = ""', "architecture"),
        ("reason", 'reason = "broken"', "reason"),
        ("link", 'link = "see the wiki"', "link"),
        ("versions", 'versions = { rocm = "10 or so" }', "version bounds"),
        ("versions", 'versions = { rocm = "" }', "version bounds"),
        ("versions", "versions = { rocm = 10 }", "rocm"),
        ("versions", 'until = "later"', "until"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_key(tmp_path: Path, line: str, wrong: str, named: str) -> None:
    text = "\n".join(wrong if old.startswith(f"{line} =") else old for old in ENTRY.splitlines())
    with pytest.raises(UsageFault, match=named) as fault:
        load(tmp_path, text)
    assert "waivers.toml" in str(fault.value) and "\n" not in str(fault.value)


def test_ids_are_unique(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="two waivers are called wave-nan"):
        load(tmp_path, ENTRY + ENTRY)


def test_one_waiver_may_name_several_cases_that_fail_alike(tmp_path: Path) -> None:
    text = ENTRY.replace(
        '"kernels/wave-grouped-decode/*"', '["kernels/wave-grouped-decode/b2", "kernels/wave-prefill/*"]'
    )
    (found,) = load(tmp_path, text).waiver
    assert found.globs == ("kernels/wave-grouped-decode/b2", "kernels/wave-prefill/*")
    assert found.about("kernels/wave-grouped-decode/b2") and found.about("kernels/wave-prefill/b1")
    assert not found.about("kernels/wave-grouped-decode/b3")
    assert Waiver.model_validate_json(found.model_dump_json()) == found


def test_a_single_case_is_stored_as_it_always_was() -> None:
    stored = waiver().model_dump_json()
    assert '"case":"kernels/wave-grouped-decode/*"' in stored
    assert Waiver.model_validate_json(stored) == waiver()
    assert waiver().globs == ("kernels/wave-grouped-decode/*",)


@pytest.mark.parametrize(
    ("case", "architecture", "covered"),
    [
        ("kernels/wave-grouped-decode/b2", "gfx942", True),
        ("kernels/wave-grouped-decode/b2", "gfx950", False),
        ("kernels/wave-prefill/b2", "gfx942", False),
        ("Kernels/wave-grouped-decode/b2", "gfx942", False),
    ],
)
def test_it_covers_its_cases_on_its_hardware_only(case: str, architecture: str, covered: bool) -> None:
    found = Waivers(waiver=(waiver(),)).find(case, architecture, {}, date(2026, 12, 1))
    assert (found is not None) is covered


@pytest.mark.parametrize(
    ("facts", "covered"),
    [
        (ROCM10, True),
        ({"rocm": "10.9.9+git123"}, True),
        ({"rocm": "10.1.0rc1"}, True),
        ({"rocm": "9.9"}, False),
        ({"rocm": "11.0"}, False),
        ({"rocm": "a nightly"}, False),
        ({}, False),
        ({"cuda": "10.0"}, False),
    ],
)
def test_versions_must_be_known_and_within(facts: dict[str, str], covered: bool) -> None:
    entry = waiver(versions={"rocm": ">=10,<11"})
    assert entry.covers("kernels/wave-grouped-decode/b2", "gfx942", facts) is covered


def test_all_versions_must_hold() -> None:
    entry = waiver(versions={"rocm": ">=10", "wave-lang": "==3.8.2"})
    assert entry.covers("kernels/wave-grouped-decode/b2", "gfx942", ROCM10 | {"wave-lang": "3.8.2"})
    assert not entry.covers("kernels/wave-grouped-decode/b2", "gfx942", ROCM10 | {"wave-lang": "3.8.3"})


@pytest.mark.parametrize(
    ("today", "expected"),
    [
        (date(2026, 11, 29), None),
        (date(2026, 11, 30), False),
        (date(2027, 2, 27), False),
        (date(2027, 2, 28), False),
        (date(2027, 3, 1), True),
    ],
)
def test_it_counts_from_its_first_to_its_last_day(today: date, expected: bool | None) -> None:
    found = Waivers(waiver=(waiver(),)).find("kernels/wave-grouped-decode/b2", "gfx942", {}, today)
    assert (found.expired if found else None) is expected


def test_a_valid_waiver_goes_before_an_expired_one() -> None:
    old = waiver("old", opened=date(2026, 9, 1), expires=date(2026, 11, 1))
    waivers = Waivers(waiver=(old, waiver("new")))
    case = "kernels/wave-grouped-decode/b2"
    found = waivers.find(case, "gfx942", {}, date(2026, 12, 1))
    assert found is not None and (found.waiver.id, found.expired) == ("new", False)
    only_old = Waivers(waiver=(old,)).find(case, "gfx942", {}, date(2026, 12, 1))
    assert only_old is not None and (only_old.waiver.id, only_old.expired) == ("old", True)


@given(st.integers(-400, 400))
def test_no_waiver_lasts_longer_than_90_days(days: int) -> None:
    opened = date(2026, 11, 30)
    if 0 <= days <= 90:
        assert waiver(expires=opened + timedelta(days)).expires == opened + timedelta(days)
    else:
        with pytest.raises(ValueError, match="90 days"):
            waiver(expires=opened + timedelta(days))


@pytest.mark.parametrize(
    ("facts", "rocm"),
    [
        ({"torch": "2.11.0+rocm10.0.0"}, "10.0.0"),
        ({"torch": "2.11.0+rocm7.2"}, "7.2"),
        ({"torch": "2.11.0+rocm7.2", "rocm": "7.2.4"}, "7.2.4"),
        ({"torch": "2.13.0+cpu"}, None),
        ({}, None),
    ],
)
def test_the_rocm_release_is_read_from_torch_where_no_fact_tells_it(facts: dict[str, str], rocm: str | None) -> None:
    assert software_facts(facts).get("rocm") == rocm


def shipped(case: str, architecture: str, rocm: str) -> str | None:
    found = load_waivers().find(case, architecture, {"rocm": rocm}, date(2026, 12, 1))
    return found.waiver.id if found else None


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("kernels/wave-grouped-decode/b2-hq128-hkv1-d576-dv512-s500", "rocm10-wave-grouped-decode-nan"),
        ("kernels/wave-grouped-decode/b2-hq16-hkv16-d64-dv64-s500", None),
        ("kernels/wave-prefill/h4-kv1-d128-n256", "rocm10-wave-prefill-heap-corruption"),
        ("multi-lora/llama-2-7b/base-text", None),
        ("multi-lora/llama-2-7b/adapter-0-text", None),
    ],
)
def test_the_known_faults_of_rocm_10(case: str, name: str | None) -> None:
    """The faults of sglang pull requests 38585 and 39356: on gfx942 with ROCm 10, and nowhere else."""
    assert shipped(case, "gfx942", "10.0.0") == name
    assert shipped(case, "gfx950", "10.0.0") is None
    assert shipped(case, "gfx942", "7.2.4") is None


# The known failure in numbers.


def outside(name: str, value: float) -> Measurement:
    return Measurement(name=name, value=value, comparison=Comparison.AT_MOST, limit=0.01, source=LimitSource.PEER)


@pytest.mark.parametrize(
    ("expected", "value", "excused"),
    [
        ({"at_least": 0.1, "at_most": 0.5}, 0.1, True),
        ({"at_least": 0.1, "at_most": 0.5}, 0.5, True),
        ({"at_least": 0.1, "at_most": 0.5}, 0.0999, False),
        ({"at_least": 0.1, "at_most": 0.5}, 0.51, False),
        ({"at_least": 0.1, "at_most": 0.5}, math.nan, False),
        ({"at_least": 0.1}, math.inf, True),
        ({"at_most": 0.5}, 0.02, True),
        ({"nan": True}, math.nan, True),
        ({"nan": True}, 0.2, False),
        ({"nan": True, "at_least": 0.1}, 0.2, True),
    ],
)
def test_a_failure_outside_the_expected_range_is_another_failure(
    expected: dict[str, object], value: float, excused: bool
) -> None:
    known = waiver(expected=[{"measurement": "max_abs_error"} | expected])
    assert known.excuses([outside("max_abs_error", value)]) is excused


def test_every_measurement_outside_its_limit_must_be_expected() -> None:
    known = waiver(expected=[{"measurement": "max_abs_error", "at_least": 0.1}])
    assert known.excuses([outside("max_abs_error", 0.2), outside("rms", 0.001)])
    assert not known.excuses([outside("max_abs_error", 0.2), outside("rms", 0.2)])
    assert not known.excuses([]), "a crash has no measurement"
    assert waiver().excuses([]), "without a range every failure is covered"


@pytest.mark.parametrize("wrong", [{}, {"at_least": 2, "at_most": 1}, {"at_leest": 1}])
def test_a_range_that_says_nothing(tmp_path: Path, wrong: dict[str, object]) -> None:
    text = ENTRY + '\n[[waiver.expected]]\nmeasurement = "x"\n' + "".join(f"{k} = {v}\n" for k, v in wrong.items())
    with pytest.raises(UsageFault, match="expected"):
        load(tmp_path, text)


def test_a_range_is_read(tmp_path: Path) -> None:
    text = ENTRY + '\n[[waiver.expected]]\nmeasurement = "max_abs_error"\nat_least = 1\nnan = true\n'
    assert load(tmp_path, text).waiver[0].expected == (Expected(measurement="max_abs_error", at_least=1.0, nan=True),)


def test_of_two_waivers_the_one_that_expects_it_counts() -> None:
    narrow = waiver("narrow", expected=[{"measurement": "max_abs_error", "at_most": 0.1}])
    wide = waiver("wide", expires=date(2027, 1, 1), expected=[{"measurement": "max_abs_error", "at_least": 0.1}])
    waivers = Waivers(waiver=(narrow, wide))

    def found(value: float) -> tuple[str, bool] | None:
        case = "kernels/wave-grouped-decode/x"
        match = waivers.find(case, "gfx942", ROCM10, date(2026, 12, 1), [outside("max_abs_error", value)])
        return (match.waiver.id, match.excuses) if match else None

    assert found(0.05) == ("narrow", True)
    assert found(0.5) == ("wide", True)
    assert found(math.nan) == ("narrow", False)
