"""The published schemas are those of the models, and what kit writes fits them."""

import json
from pathlib import Path

import jsonschema
import pytest

from kit.cli import main
from kit.measurement import Measurement
from kit.profile import find_profile, load_profiles
from kit.results.bundle import read_run
from kit.results.schema import NAMES, file_name, schema_of
from tests.unit.results.runs import Staged
from tests.unit.results.streams import error_of

ROOT = Path(__file__).parents[3]


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((ROOT / "schemas" / file_name(name)).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_current(name: str) -> None:
    text = (ROOT / "schemas" / file_name(name)).read_text()
    assert text == schema_of(name), f"run: kit schema {name} > schemas/{file_name(name)}"


@pytest.mark.parametrize("name", NAMES)
def test_the_command(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["kit", "schema", name])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, capsys.readouterr().out) == (0, schema_of(name))


def test_an_unknown_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["kit", "schema", "resulk"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "did you mean 'result'?" in capsys.readouterr().err


def test_what_a_run_writes_fits(tmp_path: Path) -> None:
    not_finite = (error_of(float("nan")), error_of(float("inf")), Measurement(name="context", value=float("-inf")))
    Staged(measure=lambda case: not_finite).write(tmp_path / "run")
    files = read_run(tmp_path / "run")
    validator("result").validate(json.loads(files["result.json"]))
    validator("plan").validate(json.loads(files["plan.json"]))
    validator("profile").validate(json.loads(files["profile.json"]))
    lines = [*files["events.jsonl"].splitlines(), *files["host.jsonl"].splitlines()]
    event = validator("event")
    for line in lines:
        event.validate(json.loads(line))
    assert len(lines) > 30


@pytest.mark.parametrize("name", sorted(load_profiles()))
def test_every_profile_fits(name: str) -> None:
    told = json.loads(find_profile(name).model_dump_json())
    validator("profile").validate(told)
    for wrong in ({"gpus": -1}, {"vendor": "apple"}, {"surprise": 1}, {"time": told["time"] | {"case": "90"}}):
        assert not validator("profile").is_valid(told | wrong), wrong


def test_what_is_not_kits_does_not_fit(tmp_path: Path) -> None:
    Staged().write(tmp_path / "run")
    told = json.loads((tmp_path / "run" / "result.json").read_bytes())
    for wrong in ({"schema_version": 2}, {"exit_code": 7}, {"cases": "none"}, {"surprise": 1}):
        assert not validator("result").is_valid(told | wrong)
    assert not validator("event").is_valid({"event": "case-passed", "session": "s", "case": "c"})
