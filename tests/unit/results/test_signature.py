"""Signatures by ssh-keygen."""

import subprocess
from pathlib import Path

import pytest

from kit.errors import EnvironmentFault, UsageFault
from kit.results.bundle import make_bundle, read_run
from kit.results.signature import is_whole
from kit.results.verify import verify, verify_files
from tests.unit.results.runs import Staged


def new_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(path)], check=True)
    return path


def allow(file: Path, name: str, key: Path) -> Path:
    file.write_text(f"{name} {key.with_name(key.name + '.pub').read_text()}")
    return file


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed")
    Staged().write(folder / "run")
    make_bundle(folder / "run", folder / "signed.tar.zst", new_key(folder / "key"))
    allow(folder / "lab", "lab@example.org", folder / "key")
    allow(folder / "others", "other@example.org", new_key(folder / "other-key"))
    return folder


def test_signed_by_an_allowed_signer(place: Path) -> None:
    told = verify(place / "signed.tar.zst", allowed_signers=place / "lab")
    assert told.refusals == ()
    assert "signed by lab@example.org" in told.notes


def test_a_signature_is_deterministic(place: Path, tmp_path: Path) -> None:
    again = make_bundle(place / "run", tmp_path / "again.tar.zst", place / "key")
    assert again.read_bytes() == (place / "signed.tar.zst").read_bytes()


def test_signed_by_someone_else(place: Path) -> None:
    assert "none of the signers" in verify(place / "signed.tar.zst", allowed_signers=place / "others").refusals[0]


def test_not_signed(place: Path) -> None:
    bundle = make_bundle(place / "run")
    assert verify(bundle, allowed_signers=place / "lab").refusals == ("it is not signed",)
    assert verify(bundle).refusals == ()


def test_signed_and_nobody_asked_by_whom(place: Path) -> None:
    told = verify(place / "signed.tar.zst")
    assert told.refusals == () and any("--allowed-signers" in note for note in told.notes)


def test_a_signature_of_other_sums(place: Path, tmp_path: Path) -> None:
    Staged(run_id="another").write(tmp_path / "run")
    files = read_run(make_bundle(tmp_path / "run"))
    files["SHA256SUMS.sig"] = read_run(place / "signed.tar.zst")["SHA256SUMS.sig"]
    assert verify_files(files).refusals == ("the signature is not one of these checksums",)
    assert "none of the signers" in verify_files(files, allowed_signers=place / "lab").refusals[0]


def test_every_byte_of_a_signature_counts(place: Path) -> None:
    signature = read_run(place / "signed.tar.zst")["SHA256SUMS.sig"]
    assert is_whole(signature)
    for place_ in range(len(signature)):
        changed = signature[:place_] + bytes([signature[place_] ^ 1]) + signature[place_ + 1 :]
        assert changed != signature
        if is_whole(changed):  # then it is another signature, which ssh-keygen refuses
            assert b"\n" not in (changed[place_ : place_ + 1], signature[place_ : place_ + 1])


def test_no_key(place: Path) -> None:
    with pytest.raises(UsageFault, match="there is no key file"):
        make_bundle(place / "run", key=place / "absent")
    with pytest.raises(UsageFault, match="cannot sign"):
        make_bundle(place / "run", key=place / "lab")
    with pytest.raises(UsageFault, match="there is no file"):
        verify(place / "signed.tar.zst", allowed_signers=place / "absent")


def test_without_ssh_keygen(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentFault, match=r"install OpenSSH's client"):
        verify(place / "signed.tar.zst", allowed_signers=place / "lab")
    told = verify(place / "signed.tar.zst")
    assert told.refusals == () and any("was not checked" in note for note in told.notes)
