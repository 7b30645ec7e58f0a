import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.errors import EnvironmentFault, ExitCode, UsageFault
from kit.events import EventLog, RunRefused
from kit.host import run_folder


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder, _ = run_folder.claim(tmp_path / "a" / "b")
    assert [path.name for path in folder.iterdir()] == ["logs"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert run_folder.claim(tmp_path)[0] == tmp_path


def test_a_folder_with_anything_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text("old")
    with pytest.raises(UsageFault, match="not empty"):
        run_folder.claim(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"junit.xml": "old"}


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    for path, words in (
        (tmp_path / "out", "out is a file"),
        (tmp_path / "out" / "a", "a cannot be made: .*out is a file"),
    ):
        with pytest.raises(UsageFault, match=words):
            run_folder.claim(path)


def test_a_link_that_leads_to_no_folder_is_named_so(tmp_path: Path) -> None:
    for name, leads_to in (("lost", "nowhere"), ("loop", "loop")):
        (tmp_path / name).symlink_to(leads_to)
        with pytest.raises(UsageFault, match=f"{name} is a link that leads to no folder"):
            run_folder.claim(tmp_path / name)
    with pytest.raises(UsageFault, match=r"below cannot be made: .*lost is a link that leads to no folder"):
        run_folder.claim(tmp_path / "lost" / "below")
    with pytest.raises(UsageFault, match="cannot be written: Too many levels of symbolic links"):
        run_folder.claim(tmp_path / "loop" / "below")


def test_a_folder_that_cannot_be_listed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can list any; so the refusal is the test's."""

    def closed(path: object, flags: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(run_folder.os, "open", closed)
    with pytest.raises(UsageFault, match="cannot be written: Permission denied"):
        run_folder.claim(tmp_path)


def test_a_full_disk_is_the_machines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(EnvironmentFault, match=r"disk .* has not the 16 MiB"):
        run_folder.claim(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("nameless", [True, False])
def test_space_for_the_reports_is_held_and_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    if not nameless:
        monkeypatch.setattr(os, "O_TMPFILE", 0)  # as on file systems that do not know it
    reserve = run_folder.Reserve(tmp_path, 2**20)
    (held,) = [os.stat(f"/proc/self/fd/{fd}") for fd in open_files() if link(fd).startswith(str(tmp_path))]  # noqa: PTH116
    assert held.st_blocks * 512 >= 2**20
    assert list(tmp_path.iterdir()) == []
    reserve.free()
    reserve.free()
    assert not [fd for fd in open_files() if link(fd).startswith(str(tmp_path))]


def open_files() -> list[str]:
    return os.listdir("/proc/self/fd")  # noqa: PTH208


def link(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
    except OSError:
        return ""


@pytest.mark.skipif(not os.path.exists("/proc/sys"), reason="needs a folder that even root cannot write")  # noqa: PTH110
def test_an_unwritable_folder_is_one_line() -> None:
    with pytest.raises(UsageFault, match="cannot be written") as caught:
        run_folder.claim(Path("/proc/sys/kit-results"))
    assert "\n" not in str(caught.value)


def test_a_folder_whose_run_was_never_started_may_be_claimed_again(tmp_path: Path) -> None:
    folder, _ = run_folder.claim(tmp_path / "out")
    for name in ("plan.json", "profile.json", "waivers.json", "host.jsonl"):
        run_folder.write(folder / name, "{}")
    run_folder.release(folder)
    assert list(folder.iterdir()) == []
    assert run_folder.claim(folder)[0] == folder


def refused_run(folder: Path) -> Path:
    folder, _ = run_folder.claim(folder)
    log = EventLog(folder / "host.jsonl")
    log.append(RunRefused(exit_code=ExitCode.IMAGE, reason="not built; build it"))
    log.close()
    for name in ("plan.json", "junit.xml", "SHA256SUMS"):
        (folder / name).write_text("{}")
    return folder


def test_a_folder_with_the_reports_of_a_refused_run_may_be_claimed_again(tmp_path: Path) -> None:
    folder = refused_run(tmp_path / "out")
    assert run_folder.claim(folder)[0] == folder
    assert [path.name for path in folder.iterdir()] == ["logs"]


@pytest.mark.parametrize("more", ["events.jsonl", "logs/null.log", "notes.txt"])
def test_a_refused_run_with_anything_else_beside_it_is_left_alone(tmp_path: Path, more: str) -> None:
    folder = refused_run(tmp_path / "out")
    (folder / more).write_text("mine")
    with pytest.raises(UsageFault, match="not empty"):
        run_folder.claim(folder)
    assert (folder / more).read_text() == "mine"
    assert (folder / "junit.xml").exists()


def test_of_two_that_claim_one_folder_at_once_one_gets_it(tmp_path: Path) -> None:
    def claim(folder: Path) -> str:
        try:
            run_folder.claim(folder)
        except UsageFault as fault:
            return "not empty" if "not empty" in fault.problem else fault.problem
        return "got it"

    with ThreadPoolExecutor(2) as pool:
        for number in range(100):
            folder = tmp_path / str(number)
            assert sorted(pool.map(claim, [folder, folder])) == ["got it", "not empty"]


def test_the_default_folder_belongs_to_one_run() -> None:
    assert str(run_folder.default_folder("MI355X-4gpu", "20261130-160501-3fa94c")) == (
        "kit-results/mi355x-4gpu-20261130-160501-3fa94c"
    )
