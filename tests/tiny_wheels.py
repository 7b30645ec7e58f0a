"""Wheels of a few hundred bytes, and an image definition of them: for pip and an engine to handle in seconds."""

import base64
import hashlib
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from kit.image import ImageDefinition, find_image

PYTHON = f"3.{sys.version_info.minor}"
NEXT_PYTHON = f"3.{sys.version_info.minor + 1}"


def make_wheel(folder: Path, name: str, version: str, requires: Iterable[str] = (), body: str = "") -> Path:
    """A pure wheel with one module. The same arguments always give the same bytes; another `body`, another hash."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    files = {
        f"{name}.py": f"VERSION = {version!r}\n{body}\n",
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: kit-tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text.encode())}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return wheel


def make_definition(
    folder: Path,
    *,
    name: str = "tiny",
    requirements: Iterable[str] = (),
    without_dependencies: Iterable[str] = (),
    expects: dict[str, str] | None = None,
    base: str = "localhost:1/none:1",
    digest: str = "",
    python: str = PYTHON,
    dockerfile: str = "Dockerfile.cpu",
    imports: Iterable[str] = (),
    leaves_out: Iterable[str] = (),
) -> ImageDefinition:
    """``<name>.toml`` in `folder`, loaded."""

    def array(items: Iterable[str]) -> str:
        return "[" + ", ".join(f"'{item}'" for item in items) + "]"

    lines = [
        f'name = "{name}"',
        'version = "1"',
        'title = "Tiny"',
        f'dockerfile = "{dockerfile}"',
        f'lock = "{name}.lock"',
        f"requirements = {array(requirements)}",
        f"without_dependencies = {array(without_dependencies)}",
        f"imports = {array(imports)}",
        f"leaves_out = {array(leaves_out)}",
        "",
        "# where it stands on",
        "[base]",
        f'reference = "{base}" # a tag',
        f'digest = "{digest}" # of that tag',
        "",
        "[python]",
        f'version = "{python}"',
        'platform = "manylinux_2_36_x86_64"',
        "",
        "[expects]",
        *(f'"{key}" = "{version}"' for key, version in (expects or {}).items()),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.toml").write_text("\n".join(lines) + "\n")
    return find_image(name, folder)
