"""A log of bounded size, whatever is printed, and never a session that waits for it."""

import os
import time
from pathlib import Path

import pytest

from kit.worker.session_log import SessionLog

MOST, TAIL = 1000, 100


def logged(path: Path, data: bytes) -> bytes:
    log = SessionLog(path, MOST, TAIL)
    writer = os.dup(log.fd)
    log.started()
    while data:
        data = data[os.write(writer, data) :]
    os.close(writer)
    log.close()
    return path.read_bytes() if path.is_file() else b""


@pytest.mark.parametrize("size", [0, 1, MOST - 1, MOST, MOST + 1, MOST + TAIL])
def test_what_fits_is_kept_byte_for_byte(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    assert logged(tmp_path / "log", data) == data


@pytest.mark.parametrize("size", [MOST + TAIL + 1, 3_000_000])
def test_of_more_the_beginning_and_the_end_are_kept(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    told = f"\n[kit: {size - MOST - TAIL} bytes are left out here]\n".encode()
    assert logged(tmp_path / "log", data) == data[:MOST] + told + data[-TAIL:]


def test_a_full_disk_holds_nobody_up(tmp_path: Path) -> None:
    """/dev/full answers every write with ENOSPC."""
    begin = time.monotonic()
    (tmp_path / "log").symlink_to("/dev/full")
    assert logged(tmp_path / "log", os.urandom(1_000_000)) == b""
    assert time.monotonic() - begin < 5


def test_a_writer_that_never_goes_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.worker.session_log._END_SECONDS", 0.2)
    log = SessionLog(tmp_path / "log", MOST, TAIL)
    writer = os.dup(log.fd)
    log.started()
    os.write(writer, b"words")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"words"
    os.close(writer)
