"""Reports are written whole or not at all, each on its own, and a full disk is one line."""

import errno
import os
from pathlib import Path

import pytest
from junitparser import JUnitXml

from kit.errors import EnvironmentFault, ReportFault
from kit.results.files import write_all, write_atomically
from kit.results.model import RunResult, load_result
from tests.unit.results.streams import one_case

REPORTS = ("junit.xml", "result.json", "report.html")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_all_reports_are_written(tmp_path: Path) -> None:
    _, result = one_case(2.0)
    assert write_all(result, tmp_path) == tuple(tmp_path / name for name in REPORTS)
    assert load_result(tmp_path / "result.json") == result
    assert JUnitXml.fromfile(str(tmp_path / "junit.xml")).failures == 1
    assert "Does not conform" in (tmp_path / "report.html").read_text()
    assert names(tmp_path) == sorted(REPORTS)
    assert (tmp_path / "junit.xml").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("blocked", REPORTS)
def test_the_other_reports_are_written_where_one_cannot_be(tmp_path: Path, blocked: str) -> None:
    (tmp_path / blocked).mkdir()
    _, result = one_case(2.0)
    with pytest.raises(EnvironmentFault, match=f"^{blocked} could not be written"):
        write_all(result, tmp_path)
    assert names(tmp_path) == sorted(REPORTS)
    assert all((tmp_path / other).stat().st_size > 0 for other in REPORTS if other != blocked)


@pytest.mark.parametrize("broken", ["kit.results.files.to_junit", "kit.results.files._to_html"])
def test_the_other_reports_are_written_where_one_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fault(_result: RunResult) -> bytes:
        raise KeyError("no such thing")

    monkeypatch.setattr(broken, fault)
    _, result = one_case(2.0)
    with pytest.raises(ReportFault, match=r"could not be made: KeyError: 'no such thing'") as seen:
        write_all(result, tmp_path)
    assert seen.value.exit_code == 5
    lost = "junit.xml" if "junit" in broken else "report.html"
    assert names(tmp_path) == sorted(name for name in REPORTS if name != lost)


def test_a_full_disk_is_one_line_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "junit.xml").write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    _, result = one_case(2.0)
    with pytest.raises(EnvironmentFault) as fault:
        write_all(result, tmp_path)
    line = str(fault.value)
    assert "junit.xml, result.json and report.html" in line and "the disk is full" in line and "\n" not in line
    assert names(tmp_path) == ["junit.xml"]
    assert (tmp_path / "junit.xml").read_bytes() == b"old"


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    _, result = one_case(2.0)
    with pytest.raises(EnvironmentFault, match="No such file"):
        write_all(result, tmp_path / "gone")


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report"
    write_atomically(path, b"long" * 10_000)
    write_atomically(path, b"short")
    assert path.read_bytes() == b"short"
    assert names(tmp_path) == ["report"]


def test_what_is_there_may_be_kept(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_bytes(b"old")
    _, result = one_case(2.0)
    assert write_all(result, tmp_path, keep=True) == (tmp_path / "result.json", tmp_path / "report.html")
    assert (tmp_path / "junit.xml").read_bytes() == b"old"


def test_junit_comes_first_where_only_one_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = [2]  # syncs of one file and its folder
    sync = os.fsync

    def full(descriptor: int) -> None:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= 1
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    _, result = one_case(2.0)
    with pytest.raises(EnvironmentFault, match=r"^result\.json and report\.html could not be written"):
        write_all(result, tmp_path)
    assert names(tmp_path) == ["junit.xml"]
