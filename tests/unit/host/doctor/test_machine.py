"""What the doctor says of clock, memory, disks and caches, at and beside each threshold."""

import os
import resource
from pathlib import Path

import pytest

from kit.finding import Severity
from kit.host.doctor import machine
from kit.host.doctor.machine import (
    look_at_cache,
    look_at_clock,
    look_at_disk,
    look_at_limits,
    look_at_memory,
    look_at_shm,
)
from kit.profile import find_profile

GIB = 2**30
NOW = 1_796_000_000.0
CPU, MI355X, H200 = map(find_profile, ("cpu", "mi355x", "h200"))


@pytest.mark.parametrize(
    ("now", "newest", "severity"),
    [
        (0.0, NOW, Severity.REFUSE),
        (NOW - 400 * 86_400, NOW, Severity.WARN),
        (NOW - 3600, NOW, Severity.OK),
        (NOW, NOW, Severity.OK),
    ],
)
def test_a_clock_that_was_set_back_is_told(now: float, newest: float, severity: Severity) -> None:
    finding = look_at_clock(now, newest)
    assert finding.severity is severity
    assert ("waivers" in finding.why) == (severity is not Severity.OK)


def test_memory_is_held_against_the_container_of_the_profile() -> None:
    assert look_at_memory(CPU, 16 * GIB, 6 * GIB).severity is Severity.OK
    assert look_at_memory(CPU, 16 * GIB, 6 * GIB - 1).severity is Severity.WARN


def test_shared_memory_matters_most_for_several_gpus(tmp_path: Path) -> None:
    """nccl issue 290: the engine's 64 MiB end in a bus error."""
    nowhere = tmp_path / "none"
    assert look_at_shm(MI355X, nowhere).severity is Severity.REFUSE
    assert look_at_shm(H200, nowhere).severity is Severity.WARN


def test_limits_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    hard = {resource.RLIMIT_NOFILE: 1024, resource.RLIMIT_NPROC: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (0, hard[which]))
    assert "1024 open files" in look_at_limits(CPU, True).what
    hard |= {resource.RLIMIT_NOFILE: 4096, resource.RLIMIT_NPROC: 100}
    assert look_at_limits(CPU, True).severity is Severity.OK
    assert look_at_limits(CPU, False).severity is Severity.WARN


def test_a_disk_is_judged_where_the_folder_will_be(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    place = tmp_path / "not" / "yet"
    assert look_at_disk("d", place, 1, 1).severity is Severity.OK
    assert look_at_disk("d", place, 1, free * 2).severity is Severity.WARN
    assert look_at_disk("d", place, free * 2, free * 2).severity is Severity.REFUSE
    assert not place.exists()


def test_a_cache_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    assert look_at_cache(tmp_path / "cache").severity is Severity.OK
    finding = look_at_cache(Path("/proc/sys/kit"))
    assert finding.severity is Severity.REFUSE
    assert "KIT_CACHE" in finding.remedy


def test_the_newest_source_is_one_of_kit_s_own() -> None:
    assert (
        0 < machine._newest_source() <= max(p.stat().st_mtime for p in Path(machine.__file__).parents[2].rglob("*.py"))
    )
