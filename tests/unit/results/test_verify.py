"""`kit verify` believes what a run left, and refuses every change of it, also where the checksums were made to fit."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from kit.errors import UsageFault
from kit.host.planner import Selection
from kit.measurement import Measurement
from kit.plan import Case
from kit.profile import find_profile
from kit.results.bundle import make_bundle, read_run
from kit.results.model import Mode, RunResult, Status
from kit.results.sums import sums_of
from kit.results.verify import Verification, verify, verify_files
from kit.waiver import Waiver
from tests.unit.results.runs import PINNED, Staged, measured, reseal

BASE = "lora-logprob/tiny-qwen3/base"


def one_red(case: Case) -> tuple[Measurement, ...]:
    return measured(case, 50.0 if case.id == BASE else 1.0)


def a_waiver(case: str = BASE) -> Waiver:
    return Waiver(
        id="known-fault",
        case=case,
        architecture="x86_64",
        reason="a fault that is known and tracked",
        link="https://example.org/issues/1",
        opened=date(2026, 11, 1),
        expires=date(2027, 1, 1),
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    Staged().write(place / "green")
    Staged(measure=one_red).write(place / "red")
    Staged(measure=one_red, waivers=(a_waiver(),)).write(place / "waived")
    qualify = Staged(mode=Mode.QUALIFY, runtime="docker", image=PINNED)
    qualify.write(place / "qualify")
    return place


@pytest.fixture
def green(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "green", tmp_path / "run"))


@pytest.fixture
def red(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "red", tmp_path / "run"))


def text(told: Verification) -> str:
    return "\n".join(told.refusals)


@pytest.mark.parametrize("name", ["green", "red", "waived"])
def test_what_a_run_left_is_verified_be_it_green_or_red(runs: Path, tmp_path: Path, name: str) -> None:
    for run in (runs / name, make_bundle(runs / name, tmp_path / "x.tar.zst")):
        told = verify(run, "cpu")
        assert (told.refusals, told.exit_code) == ((), 0)
        assert told.result and told.result.exit_code == (1 if name == "red" else 0)


# A hand that changes one thing and does not touch the checksums.


def test_one_byte_changed_in_any_file(runs: Path) -> None:
    files = read_run(make_bundle(runs / "green"))
    dice = random.Random(7)
    for name, data in files.items():
        places = {0, len(data) - 1, *(dice.randrange(len(data)) for _ in range(6))}
        for place in places:
            flipped = bytes([data[place] ^ (1 << dice.randrange(8))])
            changed = files | {name: data[:place] + flipped + data[place + 1 :]}
            told = verify_files(changed)
            assert told.exit_code == 1 and told.refusals, (name, place)


def test_one_byte_changed_in_the_file_of_the_bundle(runs: Path, tmp_path: Path) -> None:
    data = make_bundle(runs / "green").read_bytes()
    original = read_run(make_bundle(runs / "green"))
    dice = random.Random(8)
    path = tmp_path / "changed.tar.zst"
    for place in sorted({*range(12), len(data) - 1, *(dice.randrange(len(data)) for _ in range(150))}):
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << dice.randrange(8))]) + data[place + 1 :])
        if not verify(path).refusals:
            assert read_run(path) == original, "a bit of the compression that changes nothing of what is in it"


@pytest.mark.parametrize("name", ["events.jsonl", "result.json", "junit.xml", "plan.json", "SHA256SUMS"])
def test_a_file_removed(green: Path, name: str) -> None:
    (green / name).unlink()
    assert f"{name} is missing" in text(verify(green))


def test_a_file_added(green: Path) -> None:
    (green / "logs" / "extra.log").write_text("x")
    assert "logs/extra.log is not named" in text(verify(green))


# A hand that also makes the checksums fit.


def edit(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    data = json.loads(path.read_bytes())
    change(data)
    path.write_text(json.dumps(data, indent=2))


def drop_case(data: dict[str, list[dict[str, object]]]) -> None:
    data["cases"] = [case for case in data["cases"] if case["id"] != BASE]


def set_measurement(key: str, value: object, only: str = BASE) -> Callable[[dict[str, object]], None]:
    def change(data: dict[str, object]) -> None:
        for case in data["cases"]:  # type: ignore[attr-defined]
            if case["id"] == only:
                case["measurements"][1][key] = value

    return change


def make_green(data: dict[str, object]) -> None:
    data["exit_code"] = 0
    for case in data["cases"]:  # type: ignore[attr-defined]
        case["status"], case["reason"] = "passed", ""


def edit_events(folder: Path, old: str, new: str) -> None:
    path = folder / "events.jsonl"
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new))


def lines_about(folder: Path, case: str, keep: bool) -> None:
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if (f'"case":"{case}"' in line) == keep))


def append(path: Path, line: str) -> None:
    path.write_text(path.read_text() + line + "\n")


EDITS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a case removed from the result": (
        lambda f: edit(f / "result.json", lambda d: drop_case(d) or d.update(exit_code=0)),  # type: ignore
        f"case {BASE} was planned, and is not in result.json",
    ),
    "a case removed from the plan": (
        lambda f: edit(f / "plan.json", drop_case),  # type: ignore[arg-type]
        f"the mandatory case {BASE} was not planned",
    ),
    "a case removed from the events": (
        lambda f: lines_about(f, BASE, keep=False),
        f"case {BASE} is failed in result.json; its events give missing",
    ),
    "a value edited in the result": (
        lambda f: edit(f / "result.json", set_measurement("value", 0.01)),
        f"case {BASE}, max_abs_error: value is 0.01 in result.json",
    ),
    "a limit changed in the result": (
        lambda f: edit(f / "result.json", set_measurement("limit", 0.2)),
        f"case {BASE}, max_abs_error: limit is 0.2 in result.json",
    ),
    "all limits changed in the events": (
        lambda f: edit_events(f, '"limit":0.006', '"limit":0.6'),
        "its events give passed",
    ),
    "the verdicts made green in the result": (
        lambda f: edit(f / "result.json", make_green),
        f"case {BASE} is passed in result.json; its events give failed",
    ),
    "junit.xml of another run": (
        lambda f: (f / "junit.xml").write_text("<testsuites/>") and None,
        "junit.xml does not follow from the events",
    ),
    "a case spec made easier": (
        lambda f: (
            (f / "plan.json").write_text((f / "plan.json").read_text().replace('"seed": 7', '"seed": 8')) and None
        ),
        "is not the one that the profile demands",
    ),
    "a waiver added": (
        lambda f: (f / "waivers.json").write_text('{"waiver":[' + a_waiver().model_dump_json() + "]}") and None,
        "waivers.json is not the one that the run was planned with",
    ),
    "the time of the run": (
        lambda f: edit(f / "result.json", lambda d: d.update(run_id="another")),
        "the run: run_id",
    ),
    "the profile's settings": (
        lambda f: (
            (f / "profile.json").write_text((f / "profile.json").read_text().replace("float32", "bfloat16")) and None
        ),
        "its profile cpu is not this kit's: engine differ",
    ),
    "another mode": (
        lambda f: edit(f / "result.json", lambda d: d.update(mode="qualify")),
        "planned in mode ci, result.json says qualify",
    ),
    "the environment": (
        lambda f: edit(f / "environment.json", lambda d: d["gpu"].update(device="H200")),  # type: ignore[attr-defined]
        "environment.json does not follow from result.json",
    ),
    "a key given twice, for readers that take the first": (
        lambda f: (
            (f / "result.json").write_text((f / "result.json").read_text().replace("{", '{"exit_code": 0,', 1)) and None
        ),
        "result.json does not follow from the events",
    ),
    "a key given twice in the plan": (
        lambda f: (
            (f / "plan.json").write_text((f / "plan.json").read_text().replace("{", '{"mode": "qualify",', 1)) and None
        ),
        "plan.json is not as kit writes it",
    ),
    "an end told twice, at no time": (
        lambda f: append(f / "events.jsonl", '{"event":"worker-finished","at":1e999}'),
        "damaged_lines is 0 in result.json; its events give 1",
    ),
    "an end told twice": (
        lambda f: append(f / "events.jsonl", '{"event":"worker-finished","at":1796000000.0}'),
        "result.json tells 0 problems of the run, its events 1",
    ),
    "a warning removed from an injected fault": (
        lambda f: edit(f / "plan.json", lambda d: d.update(faults=[{"name": "adapter-scaling", "strength": 1.1}])),
        "warnings",
    ),
}


@pytest.mark.parametrize("what", list(EDITS))
def test_an_edit_under_checksums_that_fit(red: Path, what: str) -> None:
    change, says = EDITS[what]
    change(red)
    reseal(red)
    told = verify(red)
    assert says in text(told)
    assert told.exit_code == 1


def test_a_waiver_added_afterwards_with_result_and_reports_to_match(red: Path, runs: Path) -> None:
    for name in ("waivers.json", "result.json", "junit.xml"):
        shutil.copy(runs / "waived" / name, red / name)
    reseal(red)
    assert "waivers.json is not the one that the run was planned with" in text(verify(red))


def test_a_bundle_of_another_profile_under_this_name(tmp_path: Path) -> None:
    Staged(profile=find_profile("h200")).write(tmp_path / "run")
    bundle = make_bundle(tmp_path / "run", tmp_path / "MI355X-4gpu.tar.zst")
    assert "it is a run of profile H200-1gpu" in text(verify(bundle, "mi355x"))
    for name in ("result.json", "profile.json", "plan.json"):
        path = tmp_path / "run" / name
        path.write_text(path.read_text().replace("H200-1gpu", "MI355X-4gpu"))
    reseal(tmp_path / "run")
    told = text(verify(tmp_path / "run", "mi355x"))
    assert "its profile MI355X-4gpu is not this kit's" in told
    assert "profile.json is not the one that the run was planned with" in told


def test_limits_that_do_not_follow_from_the_peer_beside_them(red: Path) -> None:
    """All files changed consistently, but not the note on how the limit was formed."""

    def loosened(case: Case) -> tuple[Measurement, ...]:
        exact, error, effect = one_red(case)
        return exact, error.model_copy(update={"limit": 0.6}), effect

    shutil.rmtree(red)
    Staged(measure=loosened).write(red)
    assert "it is 0.6, but 2 × peer 2.50e-03 + floor 1.00e-03 gives 0.006" in text(verify(red))


def test_only_a_signature_catches_one_who_changes_all_files_consistently(red: Path) -> None:
    shutil.rmtree(red)
    Staged(measure=lambda case: measured(case, 0.5)).write(red)
    told = verify(red)
    assert told.refusals == ()
    assert any("whoever changed all of its files consistently" in note for note in told.notes)


def test_a_part_of_the_profile_is_not_the_profile(green: Path) -> None:
    shutil.rmtree(green)
    Staged(selection=Selection(batteries=("kernels",))).write(green)
    assert "the mandatory case lora-logprob/tiny-qwen3/base was not planned" in text(verify(green))


# Qualification.


def test_a_qualification(runs: Path) -> None:
    told = verify(runs / "qualify", "cpu")
    assert [r for r in told.refusals if "asset" not in r] == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"runtime": "local"}, "not in the pinned image"),
        ({"image": {}}, "not in the pinned image"),
        ({"image": PINNED | {"kit.base-pinned": "no"}}, "was not pinned by digest"),
        ({}, "the asset tiny-qwen3 was not pinned"),
    ],
)
def test_what_a_qualification_may_not_be(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    staged: dict[str, object] = {"mode": Mode.QUALIFY, "runtime": "docker", "image": PINNED}
    Staged(**(staged | changes)).write(tmp_path / "run")  # type: ignore[arg-type]
    assert says in text(verify(tmp_path / "run"))


# What another kit made.


def test_another_versions_bundle_is_held_against_meaning_and_not_wording(green: Path, tmp_path: Path) -> None:
    def make(staged: Staged, folder: Path) -> None:
        staged.write(folder)
        sources = json.loads((folder / "result.json").read_bytes())["host"]["sources"]
        for name in ("result.json", "junit.xml", "environment.json"):
            path = folder / name
            path.write_bytes(path.read_bytes().replace(sources.encode(), b"0" * 64))
        reseal(folder)

    make(Staged(measure=one_red), tmp_path / "old")
    told = verify(tmp_path / "old")
    assert told.refusals == () and any("another version of kit" in note for note in told.notes)
    reworded = tmp_path / "old" / "result.json"
    result = RunResult.model_validate_json(reworded.read_bytes())
    cases = tuple(c.model_copy(update={"reason": "so it is"}) if c.status is Status.FAILED else c for c in result.cases)
    reworded.write_bytes(result.model_copy(update={"cases": cases}).to_json())
    reseal(tmp_path / "old")
    assert verify(tmp_path / "old").refusals == ()
    junit = tmp_path / "old" / "junit.xml"
    junit.write_text(junit.read_text().replace("<failure", "<skipped").replace("</failure", "</skipped"))
    reseal(tmp_path / "old")
    assert "as failure failed is missing in the file" in text(verify(tmp_path / "old"))
    junit.write_text("<!DOCTYPE x [<!ENTITY a 'b'>]><testsuites/>")
    reseal(tmp_path / "old")
    assert "not readable as JUnit" in text(verify(tmp_path / "old"))


def test_no_such_run_and_no_such_profile(green: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="does not exist"):
        verify(tmp_path / "absent")
    with pytest.raises(UsageFault, match="unknown profile"):
        verify(green, "mi35x")


def test_a_schema_that_is_not_kits(green: Path) -> None:
    edit(green / "result.json", lambda d: d.update(schema_version=99))
    reseal(green)
    assert "result.json does not fit its schema: schema_version" in text(verify(green))


def test_sums_are_checked_byte_for_byte(green: Path) -> None:
    sums = green / "SHA256SUMS"
    sums.write_bytes(sums.read_bytes().upper().replace(b"SHA256", b"sha256"))
    assert verify(green).refusals
    reseal(green)
    sums.write_bytes(sums.read_bytes().replace(b"\n", b"\r\n"))
    assert verify(green).refusals
    assert hashlib.sha256(b"").hexdigest() not in sums_of({"x": b"1"}).decode()
    reseal(green)
    sums.write_bytes(sums.read_bytes() + b"\n")
    assert "is not as kit writes it" in text(verify(green))


@pytest.mark.parametrize("when", [-1, 1e308, float("nan"), "Infinity", 10**30])
@pytest.mark.parametrize("key", ["started", "finished"])
def test_a_time_that_no_calendar_has_is_refused_in_one_line(green: Path, key: str, when: object) -> None:
    edit(green / "result.json", lambda d: d.update({key: when}))
    reseal(green)
    assert f"result.json does not fit its schema: {key}" in text(verify(green))
