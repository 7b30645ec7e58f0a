"""The bundle: complete, deterministic, without what is private, and refused where the folder is not as its run left it."""

import hashlib
import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import zstandard

from kit.errors import UsageFault
from kit.measurement import Measurement
from kit.plan import Case
from kit.results.bundle import make_bundle, pack, read_run
from kit.results.model import RunResult
from kit.results.verify import verify
from tests.unit.results.runs import Staged, measured, reseal

FILES = {
    "SHA256SUMS", "environment.json", "events.jsonl", "host.jsonl", "junit.xml", "plan.json", "profile.json",
    "result.json", "waivers.json", "logs/kernels-triton.log", "logs/sglang-tiny-qwen3.log",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Staged().write(tmp_path / "run")
    return tmp_path / "run"


def test_everything_is_in_it(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    bundle = make_bundle(folder)
    assert bundle == folder.with_name("run.tar.zst")
    assert set(read_run(bundle)) >= FILES
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert verify(bundle).refusals == ()


def test_the_sums_are_those_of_sha256sum(folder: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_other_programs_unpack_it(folder: Path) -> None:
    plain = zstandard.ZstdDecompressor().stream_reader(make_bundle(folder).open("rb")).read()
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        entries = archive.getmembers()
        assert {(e.uid, e.gid, e.uname, e.gname, e.mode) for e in entries} == {(0, 0, "", "", 0o644)}
        assert {e.name.split("/")[0] for e in entries} == {"kit-20261201-120000-abcdef"}


def test_two_bundles_of_one_run_are_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "other-name")
    assert make_bundle(folder).read_bytes() == make_bundle(copy).read_bytes()


def test_nothing_private_is_in_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert b"annabel" in (folder / "result.json").read_bytes()
    monkeypatch.setenv("SOME_TOKEN", "AMD EPYC")  # a fact, so that it is in every report
    for name, data in read_run(make_bundle(folder)).items():
        for private in (b"annabel", b"/home/", b"/root", b"hf_", b"AMD EPYC"):
            assert private not in data, (name, private)


def test_the_reports_say_what_the_scrubbed_events_say(folder: Path) -> None:
    files = read_run(make_bundle(folder))
    result = RunResult.model_validate_json(files["result.json"])
    assert result.sessions[0].facts["model"] == "~/models/tiny"
    assert b"~/models/tiny" in files["junit.xml"]


def test_a_folder_that_was_changed_is_not_packed(folder: Path) -> None:
    (folder / "junit.xml").write_bytes(b"<testsuites/>")
    with pytest.raises(UsageFault, match=r"junit.xml was changed"):
        make_bundle(folder)
    assert not folder.with_name("run.tar.zst").exists()


def test_a_result_that_is_not_what_the_events_give_is_not_packed(tmp_path: Path) -> None:
    def red(case: Case) -> tuple[Measurement, ...]:
        return measured(case, 50.0)

    Staged(measure=red).write(tmp_path / "red")
    Staged().write(tmp_path / "green")
    shutil.copy(tmp_path / "green" / "result.json", tmp_path / "red" / "result.json")
    reseal(tmp_path / "red")
    with pytest.raises(UsageFault, match="its events give failed"):
        make_bundle(tmp_path / "red")


def test_a_run_without_its_end_is_not_packed(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()
    with pytest.raises(UsageFault, match="the run did not end"):
        make_bundle(folder)


def test_a_run_without_its_plan_is_not_packed(folder: Path) -> None:
    (folder / "plan.json").unlink()
    reseal(folder)
    with pytest.raises(UsageFault, match=r"plan\.json"):
        make_bundle(folder)


def test_an_output_that_cannot_be_written(folder: Path) -> None:
    with pytest.raises(UsageFault, match="cannot be written"):
        make_bundle(folder, folder / "absent" / "x.tar.zst")


def archive(*entries: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"\0" * entry.size))
    return zstandard.ZstdCompressor(write_content_size=True).compress(buffer.getvalue())


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size, made.uid = kind, link, 3 if kind == tarfile.REGTYPE else 0, 1000
    return made


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not compressed"),
        (b"PK\3\4 a zip", "not compressed"),
        (b"\x28\xb5\x2f\xfd", "damaged|size is not told"),
        (archive(entry("a/link", tarfile.SYMTYPE, "/etc/passwd")), "beside plain files"),
        (archive(entry("a/x"), entry("../x")), "beside plain files"),
        (archive(entry("/x")), "beside plain files"),
        (archive(entry("top/x")), "changed, or was made by another program"),
        (archive(), "beside plain files"),
        (pack({"x": b"1"}, "kit-1", 5)[:-3], "cut off|damaged"),
        (pack({"x": b"1"}, "kit-1", 5) + b"more", "added to its end"),
    ],
)
def test_what_is_no_bundle_is_one_line(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "x.tar.zst"
    path.write_bytes(data)
    with pytest.raises(UsageFault, match=says):
        read_run(path)
    assert len(verify(path).refusals) == 1


def test_names_with_dots_stay_names(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.zst"
    path.write_bytes(pack({"../../x": b"1"}, "kit-1", 5))
    assert list(read_run(path)) == ["../../x"], "nothing is ever written by reading"


def test_a_link_in_a_folder_is_refused(folder: Path) -> None:
    (folder / "logs" / "link").symlink_to("/etc/hostname")
    with pytest.raises(UsageFault, match="no plain file"):
        read_run(folder)


def test_the_environment_tells_machine_and_software(folder: Path) -> None:
    from kit.results.environment import Environment

    told = Environment.model_validate_json(read_run(make_bundle(folder))["environment.json"])
    assert (told.kit.revision, told.kit.clean) == ("0123456789abcdef", True)
    assert told.kit.sources and told.host["kernel"] and told.packages["torch"] == "2.13.0"
    assert told.gpu == {"device": "AMD EPYC", "architecture": "x86_64"}
    assert "pydantic" in told.host_packages
    assert hashlib.sha256(b"").hexdigest() not in told.kit.sources
