import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.errors import EnvironmentFault, UsageFault
from kit.host import run_folder


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = run_folder.claim(tmp_path / "a" / "b")
    assert [path.name for path in folder.iterdir()] == ["logs"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert run_folder.claim(tmp_path) == tmp_path


def test_a_folder_with_anything_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text("old")
    with pytest.raises(UsageFault, match="not empty"):
        run_folder.claim(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"junit.xml": "old"}


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    for path in (tmp_path / "out", tmp_path / "out" / "below"):
        with pytest.raises(UsageFault, match="is a file"):
            run_folder.claim(path)


def test_a_full_disk_is_the_machines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/full answers every write with ENOSPC."""
    real = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        return real(Path("/dev/full"), data) if path.parent == tmp_path else real(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(EnvironmentFault, match=r"disk .* is full"):
        run_folder.claim(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/proc/sys"), reason="needs a folder that even root cannot write")  # noqa: PTH110
def test_an_unwritable_folder_is_one_line() -> None:
    with pytest.raises(UsageFault, match="cannot be written") as caught:
        run_folder.claim(Path("/proc/sys/kit-results"))
    assert "\n" not in str(caught.value)


def test_a_folder_whose_run_was_never_started_may_be_claimed_again(tmp_path: Path) -> None:
    folder = run_folder.claim(tmp_path / "out")
    for name in ("plan.json", "profile.json", "waivers.json", "host.jsonl"):
        run_folder.write(folder / name, "{}")
    run_folder.release(folder)
    assert list(folder.iterdir()) == []
    assert run_folder.claim(folder) == folder


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
