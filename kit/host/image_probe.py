"""Runs inside a built image, without network or device: tells what is installed, in one JSON object on standard output.

Only the standard library, and no import of kit: what the image holds is what is looked at, so nothing of it is believed but its
Python. Its one argument is the JSON of `Question`; the answer has the keys of `kit.host.image_verify.Answer`.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import importlib.util
import json
import mmap
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20
_IMPORT_SECONDS = 900
_HEADER_BYTES = 16
_HIP_TARGET = re.compile(rb"hipv4-amdgcn-amd-amdhsa-+(gfx[0-9a-f]+)")
_CUDA_TARGET = re.compile(r"\.(sm_\d+[a-z]?)\.")


def file_hash(path: Path) -> str:
    """SHA-256 of a file as RECORD spells it, or an empty text where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_CHUNK):
                digest.update(block)
    except OSError:
        return ""
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def record_of(distribution: importlib.metadata.Distribution) -> dict[str, str]:
    """Path to hash (empty where RECORD has none), as the distribution's RECORD lists them."""
    text = distribution.read_text("RECORD") or ""
    return {row[0]: row[1].partition("=")[2] for row in csv.reader(text.splitlines()) if row}


def stale_bytecode(path: Path) -> bool:
    """Whether a compiled file is not of the source beside it: no such source, or another one's hash in its header."""
    try:
        source = Path(importlib.util.source_from_cache(str(path))).read_bytes()
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except (OSError, ValueError, NotImplementedError):
        return True
    hashed = header[4:8] == b"\x01\0\0\0" or header[4:8] == b"\x03\0\0\0"
    return hashed and header[8:] != importlib.util.source_hash(source)


def unlisted(folder: Path, listed: Container[Path]) -> list[str]:
    """Files of a folder of distributions that no RECORD lists; bytecode counts with its source."""
    found = []
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            if path in listed:
                continue
            if path.suffix == ".pyc" and path.parent.name == "__pycache__" and not stale_bytecode(path):
                continue
            found.append(str(path))
    return found


def kernel_targets(path: Path) -> set[str]:
    """GPU architectures for which a shared library holds code."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = {match.decode() for match in _HIP_TARGET.findall(data)}
        has_cuda = data.find(b".nv_fatbin") >= 0
    if has_cuda and (tool := cuobjdump()):
        done = subprocess.run([tool, "--list-elf", str(path)], capture_output=True, text=True)
        found |= set(_CUDA_TARGET.findall(done.stdout))
    return found


def cuobjdump() -> str | None:
    """NVIDIA's own reader of such libraries: Triton's wheel brings it."""
    triton = importlib.util.find_spec("triton")
    beside = Path(triton.origin).parent / "backends/nvidia/bin/cuobjdump" if triton and triton.origin else None
    return str(beside) if beside and beside.is_file() else shutil.which("cuobjdump")


def torch_facts() -> dict[str, str]:
    """What torch was built for, from its file of constants: nothing of torch is loaded."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    facts = runpy.run_path(str(Path(spec.origin).parent / "version.py"))
    return {key: str(facts[key]) for key in ("cuda", "hip") if facts.get(key)}


def import_error(modules: list[str]) -> str:
    """The last line that an import of all of them says, or an empty text."""
    if not modules:
        return ""
    command = [sys.executable, "-c", "import " + ", ".join(modules)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no end within {_IMPORT_SECONDS} s"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return "" if done.returncode == 0 else f"exit code {done.returncode}: {lines[-1] if lines else 'no word'}"


def compare(
    owners: dict[Path, list[tuple[str, str]]], records: dict[str, dict[str, str]], pool: ThreadPoolExecutor
) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]:
    """Files that are as no owner's RECORD says, with what is wrong; and those of one owner that another one overwrote."""
    damaged: list[tuple[str, str, str]] = []
    overwritten: list[tuple[str, str]] = []
    hashed = [path for path, rows in owners.items() if any(records[name][text] for name, text in rows)]
    for path, real in zip(hashed, pool.map(file_hash, hashed), strict=True):
        wrong = [(name, text) for name, text in owners[path] if records[name][text] not in ("", real)]
        if not wrong or (path.suffix == ".pyc" and not stale_bytecode(path)):
            continue  # bytecode that a wheel brings is made anew, from the same source
        if len(wrong) < len(owners[path]):
            overwritten += wrong
        else:
            damaged += [(name, text, "is changed" if real else "is missing") for name, text in wrong]
    return damaged, overwritten


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Look at everything."""
    prefix = Path(question["prefix"])
    versions: dict[str, str] = {}
    records: dict[str, dict[str, str]] = {}
    kernels: dict[str, list[str]] = {}
    owners: dict[Path, list[tuple[str, str]]] = {}
    folders: set[Path] = set()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for distribution in importlib.metadata.distributions():
            name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
            if name in versions:
                continue  # hidden by one that comes before it on the path
            versions[name] = distribution.version
            folder = Path(str(distribution.locate_file("")))
            if prefix not in folder.parents:
                continue
            folders.add(folder)
            record = records[name] = record_of(distribution)
            paths = [Path(os.path.normpath(folder / path)) for path in record]
            for path, text in zip(paths, record, strict=True):
                owners.setdefault(path, []).append((name, text))
            if name in question["kernels"]:
                libraries = [
                    path for path in paths if ".so" in path.suffixes and path.is_file() and path.stat().st_size
                ]
                kernels[name] = sorted(set().union(*pool.map(kernel_targets, libraries)))
        damaged, overwritten = compare(owners, records, pool)
    sources = Path(question["sources"])
    return {
        "python": platform.python_version(),
        "versions": versions,
        "records": records,
        "damaged": damaged,
        "overwritten": overwritten,
        "unlisted": sorted(path for folder in sorted(folders) for path in unlisted(folder, owners)),
        "sources": {
            path.relative_to(sources).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(sources.rglob("*"))
            if path.is_file()
        },
        "torch": torch_facts(),
        "kernels": kernels,
        "import_error": import_error(question["imports"]),
    }


if __name__ == "__main__":
    json.dump(answer(json.loads(sys.argv[1])), sys.stdout)
