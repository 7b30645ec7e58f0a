"""``kit report``: the report made again, offline, from a folder or from a result alone."""

from pathlib import Path

import pytest

from kit.check_spec import NullCheck
from kit.host.local_runtime import LocalRuntime
from kit.profile import find_profile
from kit.results.files import write_all
from kit.results.junit_read import read_junit
from kit.results.model import RunResult, load_result
from kit.results.stored import as_json
from kit.waiver import Waivers
from tests.jobs import kit
from tests.rehearsal import null_plan, rehearse, write_plan
from tests.unit.results.report.samples import green, red


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    write_all(red(), made)
    return made


@pytest.mark.parametrize("name", ["", "result.json"])
def test_it_is_the_same_report(tmp_path: Path, folder: Path, name: str) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = kit("report", str(folder / name), "--output", str(tmp_path / "again.html"))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert (tmp_path / "again.html").read_bytes() == before[folder / "report.html"]
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_with_an_earlier_run_it_tells_since_when(tmp_path: Path, folder: Path) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    write_all(green(), earlier)
    assert kit("report", str(folder), "--since", str(earlier), "--output", str(tmp_path / "a.html")).returncode == 0
    assert "Since when:" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("wrong", ["nowhere", "run/junit.xml", "run/report.html"])
def test_what_is_no_run_is_one_line(tmp_path: Path, folder: Path, wrong: str) -> None:
    done = kit("report", str(tmp_path / wrong), "--output", str(tmp_path / "a.html"))
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert not (tmp_path / "a.html").exists()


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, folder: Path) -> None:
    done = kit("report", str(folder), "--output", str(tmp_path / "gone" / "a.html"))
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and "--output" in done.stderr


@pytest.fixture
def unreported(tmp_path: Path) -> tuple[Path, RunResult]:
    """A rehearsed run whose reports were never written, and what they would have told."""
    planned = null_plan([NullCheck(act="pass"), NullCheck(act="fail")], [NullCheck(act="kill"), NullCheck(act="pass")])
    folder = write_plan(planned, tmp_path / "run")
    (folder / "profile.json").write_bytes(as_json(find_profile("cpu")))
    (folder / "waivers.json").write_bytes(as_json(Waivers()))
    return folder, rehearse(planned, LocalRuntime(folder, tmp_path), folder).result


def test_a_run_without_a_result_gets_it_from_its_events(unreported: tuple[Path, RunResult]) -> None:
    folder, expected = unreported
    done = kit("report", str(folder))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    first, *written = done.stdout.splitlines()
    assert "result.json is missing" in first and "INCOMPLETE (exit code 5)" in first
    assert written == [f"written: {folder}/{name}" for name in ("junit.xml", "result.json", "report.html")]
    made = load_result(folder / "result.json")
    assert made.exit_code == expected.exit_code == 5
    assert made.cases == expected.cases and made.problems == expected.problems
    assert list(read_junit((folder / "junit.xml").read_bytes()).differences(expected)) == []
    assert "Incomplete" in (folder / "report.html").read_text()


def test_reports_that_were_written_are_kept(unreported: tuple[Path, RunResult], tmp_path: Path) -> None:
    folder, _ = unreported
    (folder / "junit.xml").write_text("what fitted")
    done = kit("report", str(folder), "--output", str(tmp_path / "a.html"))
    assert done.returncode == 0, done.stderr
    assert (folder / "junit.xml").read_text() == "what fitted"
    assert (tmp_path / "a.html").read_bytes() == (folder / "report.html").read_bytes()


def test_a_run_that_was_killed_is_incomplete(unreported: tuple[Path, RunResult]) -> None:
    folder, _ = unreported
    (folder / "host.jsonl").write_bytes(b"")
    events = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(b"".join(events[:4])[:-9])
    assert kit("report", str(folder)).returncode == 0
    made = load_result(folder / "result.json")
    assert (made.exit_code, made.damaged_lines, len(made.cases)) == (5, 1, 4)


def test_another_runs_profile_gives_no_result(unreported: tuple[Path, RunResult]) -> None:
    folder, _ = unreported
    (folder / "profile.json").write_bytes(as_json(find_profile("h200")))
    done = kit("report", str(folder))
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert not (folder / "result.json").exists()
