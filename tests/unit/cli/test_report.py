"""``kit report``: the report made again, offline, from a folder or from a result alone."""

from pathlib import Path

import pytest

from kit.results.files import write_all
from tests.jobs import kit
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
