"""Compares a built image with its definition, its lock and its base: what it says of itself, and what lies in it."""

import contextlib
import csv
import fnmatch
import hashlib
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException

from kit.errors import ImageFault
from kit.host.container import TMPFS, container_user
from kit.host.engine_faults import engine_faults
from kit.host.image_build import REVISION, image_labels
from kit.host.image_settle import PREFIX, matches
from kit.host.image_store import BASE_ID, BASE_NAME, find
from kit.host.lockfile import Pin, normalised, read_lock
from kit.host.wheelhouse import held_wheels
from kit.image import ImageDefinition, content_tag, source_files
from kit.measurement import Record
from kit.paths import package_folder

_PROBE_SECONDS = 3600
_SOURCES = "/opt/kit-source/kit"
_SHOWN = 5
_OWN_LAYERS = 2  # the stack, and kit's sources


class Question(Record):
    """What the probe is asked: where kit's own distributions and sources lie, and which kernels and imports matter."""

    prefix: str = str(PREFIX)
    sources: str = _SOURCES
    kernels: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()


class Answer(Record):
    """What `kit.host.image_probe` found in the image.

    Attributes:
        versions: of every distribution that Python sees, by normalised name.
        records: for those of the lock: path to SHA-256 as RECORD spells it, empty where it has none.
        damaged: name, path and what is wrong, for files that are not as their RECORD says.
        overwritten: name and path of files that two distributions bring, which are now the other one's.
        unlisted: files beside distributions that no RECORD lists.
        sources: SHA-256 (hex) of kit's own files.
        torch: ``cuda`` and ``hip`` of torch's build.
        kernels: architectures in the shared libraries, by distribution.
        import_error: of the modules that must import without a device.
    """

    python: str
    versions: dict[str, str]
    records: dict[str, dict[str, str]]
    damaged: tuple[tuple[str, str, str], ...]
    overwritten: tuple[tuple[str, str], ...]
    unlisted: tuple[str, ...]
    sources: dict[str, str]
    torch: dict[str, str]
    kernels: dict[str, tuple[str, ...]]
    import_error: str


@dataclass
class Verified:
    """What verification looked at: one line a check that held, one a finding, and what could not be looked at."""

    held: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)

    def judge(self, what: str, wrong: Sequence[str]) -> None:
        """Take the outcome of one check; of many faults of a kind a few are shown."""
        if not wrong:
            self.held.append(what)
        more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        self.findings += [f"{what}: {text}" for text in (*wrong[:_SHOWN], *more)]


def verify_image(
    client: "docker.DockerClient",
    definition: ImageDefinition,
    wheels: Callable[[ImageDefinition], Sequence[Path]] = held_wheels,
) -> Verified:
    """Look at everything: labels, base layers, distributions, files, kit's sources, kernels, imports.

    Args:
        wheels: gives those of the lock, each checked by hash; what they list is then what must lie in the image. Where it gives
            none, the image's own lists are believed.

    Raises:
        ImageFault: no such image, or its Python does not answer. EnvironmentFault: the engine does not answer.
    """
    seen = Verified()
    sources = source_files()
    with engine_faults():
        image = find(client, content_tag(definition, sources)) or find(client, definition.tag)
    if image is None:
        raise ImageFault(f"image {definition.tag} is not built", f"run '{definition.build_command}'")
    _check_labels(client, definition, image, sources, seen)
    try:
        pins = read_lock(definition)
        seen.held.append(f"lock: {len(pins)} wheels, made from this definition's requirements")
    except ImageFault as fault:
        seen.findings.append(f"lock: {fault}")
        return seen
    question = Question(kernels=tuple(map(normalised, definition.kernels)), imports=definition.imports)
    answer = _ask(client, image.id, question)
    _check_versions(definition, pins, answer, seen)
    _check_files(definition, answer, wheels(definition), seen)
    wrong_sources = _different(answer.sources, {n: hashlib.sha256(c).hexdigest() for n, c in sources.items()})
    seen.judge(f"kit: {len(sources)} files", wrong_sources)
    for name, wanted in definition.kernels.items():
        there = answer.kernels.get(normalised(name), ())
        missing = [f"no code for {target}" for target in wanted if target not in there]
        seen.judge(f"kernels of {name}: {' '.join(there) or 'none'}", missing)
    if definition.imports:
        wrong = [answer.import_error] if answer.import_error else []
        seen.judge(f"import {', '.join(definition.imports)}", wrong)
    return seen


def _check_labels(
    client: "docker.DockerClient", definition: ImageDefinition, image: Any, sources: dict[str, bytes], seen: Verified
) -> None:
    labels: dict[str, str] = image.labels or {}
    pinned = labels.get("kit.base-pinned") == "yes"
    with engine_faults():
        base = find(client, definition.base_reference if pinned else labels.get(BASE_NAME, ""))
    base_id = labels.get(BASE_ID, "") if base is None else base.id
    if base is None:
        seen.not_checked.append(f"base layers: the engine does not have {labels.get(BASE_NAME) or 'the base'}")
    else:
        layers, own = base.attrs["RootFS"]["Layers"], image.attrs["RootFS"]["Layers"]
        wrong = [] if own[: len(layers)] == layers else [f"the image does not begin with the layers of {base.id[:19]}"]
        if len(own) != len(layers) + _OWN_LAYERS:
            wrong.append(f"{len(own) - len(layers)} layers lie on it, not {_OWN_LAYERS}")
        seen.judge(f"base: {len(layers)} layers of {labels.get(BASE_NAME)}", wrong)
    wanted = image_labels(definition, None if pinned else labels.get(BASE_NAME), base_id, sources)
    del wanted[REVISION]
    seen.judge(f"labels: {len(wanted)}", _different({key: labels.get(key, "") for key in wanted}, wanted))


def _different(there: dict[str, str], wanted: dict[str, str]) -> list[str]:
    """What differs between two tables, a clause each; long digests are cut."""
    found = [f"{key} is not there" for key in sorted(wanted.keys() - there.keys())]
    found += [f"{key} does not belong there" for key in sorted(there.keys() - wanted.keys())]
    both = sorted(key for key in wanted.keys() & there.keys() if wanted[key] != there[key])
    return found + [f"{key} is '{there[key][:24]}', not '{wanted[key][:24]}'" for key in both]


def _check_versions(definition: ImageDefinition, pins: Iterable[Pin], answer: Answer, seen: Verified) -> None:
    locked = {pin.name: pin.version for pin in pins}
    there = {name: answer.versions[name] for name in answer.records}
    seen.judge(f"distributions: {len(locked)} of the lock and no other", _different(there, locked))
    facts = {f"torch.version.{key}": value for key, value in answer.torch.items()} | {"python": answer.python}
    facts |= answer.versions
    wanted = {normalised(name) if "." not in name else name: text for name, text in definition.expects.items()}
    wanted |= {"python": f"{definition.python.version}.*", **definition.facts}
    wrong = [
        f"{name} is {facts.get(name, 'not there')}, not {text}"
        for name, text in wanted.items()
        if not fnmatch.fnmatchcase(facts.get(name, ""), text)
    ]
    seen.judge("stack: " + ", ".join(f"{name} {facts.get(name, 'not there')}" for name in wanted), wrong)


def _check_files(definition: ImageDefinition, answer: Answer, wheels: Sequence[Path], seen: Verified) -> None:
    damaged = [
        f"{name}: {path} {what}"
        for name, path, what in answer.damaged
        if not (what == "is missing" and matches(path, definition.leaves_out))
    ]
    count = sum(1 for record in answer.records.values() for sha256 in record.values() if sha256)
    seen.judge(f"files: {count} as RECORD has them", damaged)
    seen.judge(
        "files: no other beside them",
        [f"{path} is in no RECORD, or is bytecode of another source" for path in answer.unlisted],
    )
    seen.held += [f"files: {path} of {name} is another distribution's of the lock" for name, path in answer.overwritten]
    if not wheels:
        seen.not_checked.append("RECORD itself: the wheels are not here, 'kit images build' fetches them")
        return
    wrong: list[str] = []
    for wheel in wheels:
        name = normalised(wheel.name.split("-", 1)[0])
        record = answer.records.get(name, {})
        wrong += [
            f"{name}: RECORD differs from the wheel's at {path}" for path, h in _listed(wheel) if record.get(path) != h
        ]
    seen.judge(f"RECORD: as in {len(wheels)} wheels of the lock's hashes", wrong)


def _listed(wheel: Path) -> Iterator[tuple[str, str]]:
    """Path and hash of a wheel's files that are installed under their own names."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD") and name.count("/") == 1)
        text = archive.read(name).decode()
    for row in csv.reader(io.StringIO(text)):
        if row and row[1] and ".data/" not in row[0]:
            yield row[0], row[1].partition("=")[2]


def _ask(client: "docker.DockerClient", image: str, question: Question) -> Answer:
    """Start the image as a run does, without network, capabilities or a writable root, and let the probe look around."""
    probe = (package_folder() / "host" / "image_probe.py").read_text(encoding="utf-8")
    with engine_faults():
        container = client.containers.create(
            image,
            ["python", "-c", probe, question.model_dump_json()],
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            tmpfs={"/tmp": TMPFS},
            user=container_user(),
        )
        try:
            container.start()
            code = _ended(container)
            output = container.logs(stdout=True, stderr=False)
            errors = container.logs(stdout=False, stderr=True, tail=1).decode(errors="replace").strip()
        finally:
            with contextlib.suppress(DockerException):
                container.remove(force=True)
    if code != 0:
        raise ImageFault(f"the image's Python does not answer: exit code {code}: {errors[:200]}", "build it anew")
    return Answer.model_validate(json.loads(output))


def _ended(container: Any) -> int:
    """Its exit code, waited for in steps that are shorter than the client's time limit."""
    end = time.monotonic() + _PROBE_SECONDS
    while time.monotonic() < end:
        container.reload()
        if container.status in ("exited", "dead"):
            return int(container.attrs["State"]["ExitCode"])
        time.sleep(0.2)
    raise ImageFault(f"the image's Python did not answer within {_PROBE_SECONDS} s", "look at the machine's load")
