"""Signatures over ``SHA256SUMS`` by ``ssh-keygen -Y``: in every OpenSSH since 8.1, with the keys that people have."""

import base64
import shutil
import subprocess
import tempfile
from pathlib import Path

from kit.errors import EnvironmentFault, UsageFault

NAMESPACE = "kit-bundle"
_SECONDS = 60
_COLUMNS = 70
_BEGIN, _FINISH = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"


def sign(data: bytes, key: Path) -> bytes:
    """A signature of `data` by a private key file; deterministic for Ed25519.

    Raises:
        UsageFault: no such key, or not one to sign with. EnvironmentFault: no ssh-keygen.
    """
    if not key.is_file():
        raise UsageFault(f"there is no key file {key}", "make one with 'ssh-keygen -t ed25519 -f FILE'")
    done = _run(["-Y", "sign", "-q", "-f", str(key.absolute()), "-n", NAMESPACE], data)
    if done.returncode:
        raise UsageFault(
            f"{key} cannot sign: {_said(done)}", "use an OpenSSH private key of your own, readable by you alone"
        )
    return done.stdout


def is_whole(signature: bytes) -> bool:
    """Whether `signature` is, byte for byte, in the form in which ``ssh-keygen`` writes signatures."""
    lines = signature.decode(errors="replace").splitlines()
    try:
        inner = base64.b64decode("".join(lines[1:-1]), validate=True)
    except ValueError:
        return False
    text = base64.b64encode(inner).decode()
    body = [text[start : start + _COLUMNS] for start in range(0, len(text), _COLUMNS)]
    return signature == "\n".join([_BEGIN, *body, _FINISH, ""]).encode()


def signer_of(data: bytes, signature: bytes, allowed: Path) -> str | None:
    """Which of the allowed signers (``ssh-keygen(1)``, ALLOWED SIGNERS) signed `data` with this signature, if any.

    Raises:
        UsageFault: no such file. EnvironmentFault: no ssh-keygen.
    """
    if not allowed.is_file():
        raise UsageFault(f"there is no file {allowed}", "list the signers as 'name key-type key', one a line")
    with tempfile.TemporaryDirectory(prefix="kit-signature-") as place:
        file = Path(place) / "signature"
        file.write_bytes(signature)
        told = _run(["-Y", "find-principals", "-s", str(file), "-f", str(allowed)], data)
        for name in told.stdout.decode(errors="replace").splitlines() if told.returncode == 0 else []:
            arguments = ["-Y", "verify", "-f", str(allowed), "-I", name, "-n", NAMESPACE, "-s", str(file)]
            if _run(arguments, data).returncode == 0:
                return name
    return None


def made_by_some_key(data: bytes, signature: bytes) -> bool:
    """Whether `signature` is a whole signature of `data`, by whomever.

    Raises:
        EnvironmentFault: no ssh-keygen.
    """
    with tempfile.TemporaryDirectory(prefix="kit-signature-") as place:
        file = Path(place) / "signature"
        file.write_bytes(signature)
        return _run(["-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(file)], data).returncode == 0


def _run(arguments: list[str], data: bytes) -> "subprocess.CompletedProcess[bytes]":
    program = shutil.which("ssh-keygen")
    if program is None:
        raise EnvironmentFault(
            "ssh-keygen is not on this machine", "install OpenSSH's client (openssh-client), 8.1 or newer"
        )
    try:
        return subprocess.run([program, *arguments], input=data, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(
            "ssh-keygen did not answer", "use a key without passphrase, or an agent that has it"
        ) from None


def _said(done: "subprocess.CompletedProcess[bytes]") -> str:
    return " ".join(done.stderr.decode(errors="replace").split())[:160] or f"exit code {done.returncode}"
