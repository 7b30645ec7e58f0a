"""Builds an image through the Docker SDK for Python, and labels it with all that it was built from."""

import contextlib
import fcntl
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import docker
import requests
from docker.errors import DockerException

from kit.errors import EnvironmentFault, ImageFault
from kit.host.engine_faults import engine_faults, engine_says, patient
from kit.host.facts import source_revision
from kit.host.image_context import kit_context, stack_context
from kit.host.image_store import BASE_DIGEST, BASE_ID, BASE_NAME, NAME, STACK, BuiltImage, find
from kit.host.wheelhouse import fetch_wheels
from kit.image import (
    ImageDefinition,
    content_tag,
    definition_digest,
    lock_digest,
    source_digest,
    source_files,
    stack_tag,
)
from kit.paths import cache_folder

REVISION = "org.opencontainers.image.revision"
_STEP_SECONDS = 3600
_TAIL_LINES = 4
_CHATTER = ("Removing intermediate container", " --->", "Step ")
Say = Callable[[str], None]


@dataclass(frozen=True)
class BuildOptions:
    """How to build: on another base than the definition's, and whether layers of earlier builds may be used."""

    base: str | None = None
    use_cache: bool = True


def build_image(
    client: "docker.DockerClient", definition: ImageDefinition, options: BuildOptions, say: Say
) -> BuiltImage:
    """Build the stack, put kit on it, and tag the image by its content. No step has a network.

    A stack is built once for a lock, Dockerfile and base; a change in kit builds one small layer anew. An image of the same
    content on the same base is built once too; ``use_cache=False`` builds both anew. No other image is touched:
    `kit.host.image_store.leftovers` tells which may go.

    Raises:
        ImageFault: no base, no wheel, or a step that failed (the log is kept and named).
        EnvironmentFault: no network where one is needed, a full disk, or an engine that stopped answering.
    """
    with patient(client):
        return _built(client, definition, options, say)


def _built(client: "docker.DockerClient", definition: ImageDefinition, options: BuildOptions, say: Say) -> BuiltImage:
    started = time.monotonic()
    base = options.base or definition.base_reference
    base_image = _base_image(client, base, say)
    sources = source_files()
    tag = content_tag(definition, sources)
    labels = image_labels(definition, options.base, base_image.id, sources)
    with engine_faults():
        image = find(client, tag) if options.use_cache else None
    if image is None or not _same(image.labels, labels):
        stack = _stack(client, definition, base, base_image.id, options, say)
        with kit_context(sources) as context:
            image = _build(client, context, tag, {"STACK": stack}, labels, options, say)
    with engine_faults():
        image.tag(*definition.tag.split(":"))
    built = BuiltImage(image.id, tag, dict(image.labels), int(image.attrs["Size"]))
    say(f"image: {built.tag}, {built.size / 1e9:.2f} GB ({time.monotonic() - started:.0f} s)")
    return built


def _stack(
    client: "docker.DockerClient", definition: ImageDefinition, base: str, base_id: str, options: BuildOptions, say: Say
) -> str:
    """Its tag; built where it is not there, by one process at a time."""
    tag = stack_tag(definition, base_id)
    with _alone(tag):
        with engine_faults():
            if options.use_cache and find(client, tag):
                return tag
        arguments = {
            "BASE_IMAGE": base,
            "STACK": tag,
            "EXPECTS": " ".join(f"{k}=={v}" for k, v in sorted(definition.expects.items())),
            "LEAVES_OUT": " ".join(definition.leaves_out),
        }
        with stack_context(definition, _wheels(definition, say)) as context:
            _build(client, context, tag, arguments, {STACK: tag}, options, say)
        _remove_installer(client, tag)
    return tag


def _remove_installer(client: "docker.DockerClient", tag: str) -> None:
    """What the stage that installs leaves behind: the wheels, and a second copy of the stack."""
    with engine_faults():
        client.images.prune({"dangling": True, "label": f"kit.installs={tag}"})


def _build(
    client: "docker.DockerClient",
    context: IO[bytes],
    tag: str,
    arguments: dict[str, str],
    labels: dict[str, str],
    options: BuildOptions,
    say: Say,
) -> Any:
    with engine_faults():
        stream = client.api.build(
            fileobj=context,
            custom_context=True,
            dockerfile="Dockerfile",
            tag=tag,
            buildargs=arguments,
            labels=labels,
            network_mode="none",
            nocache=not options.use_cache,
            rm=True,
            forcerm=True,
            timeout=_STEP_SECONDS,
            decode=True,
        )
        _follow(stream, tag, say)
        return client.images.get(tag)


@contextlib.contextmanager
def _alone(tag: str) -> Iterator[None]:
    """Hold the lock of a stack: checkouts that want the same one wait for the first, and find it built."""
    with (_cache("locks") / tag.replace(":", "-")).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _same(labels: dict[str, str], wanted: dict[str, str]) -> bool:
    """Whether an image was built from the same; a commit that changes nothing of it is no difference."""
    return all(labels.get(key) == value for key, value in wanted.items() if key != REVISION)


def _wheels(definition: ImageDefinition, say: Say) -> tuple[Path, ...]:
    started = time.monotonic()
    house = fetch_wheels(definition)
    seconds = time.monotonic() - started
    say(f"wheels: {len(house.wheels)}, {house.size / 1e6:.0f} MB, {house.fetched} fetched ({seconds:.0f} s)")
    return house.wheels


def _base_image(client: "docker.DockerClient", base: str, say: Say) -> Any:
    """The base, pulled where it is not there."""
    with engine_faults():
        if found := find(client, base):
            return found
    say(f"base: pulling {base}")
    repository, tag = (base, None) if "@" in base or ":" not in base.rsplit("/", 1)[-1] else base.rsplit(":", 1)
    try:
        return client.images.pull(repository, tag=tag or ("latest" if "@" not in base else None))
    except (DockerException, requests.RequestException) as error:
        raise ImageFault(
            f"the base image {base} is not here and cannot be pulled ({engine_says(error)})",
            "name one that is here with --base; 'scripts/docker-engine.sh base NAME' makes one",
        ) from None


def image_labels(
    definition: ImageDefinition, base: str | None, base_id: str, sources: dict[str, bytes]
) -> dict[str, str]:
    """All that an image is labelled with.

    Args:
        base: what it was built on where that is not the definition's own base.
        base_id: id of that base.
        sources: of kit, as `kit.image.source_files` gives them.
    """
    pinned = base is None and bool(definition.base.digest)
    return {
        "org.opencontainers.image.title": definition.title,
        "org.opencontainers.image.version": definition.version,
        BASE_NAME: base or definition.base.reference,
        BASE_DIGEST: definition.base.digest if pinned else (base or "").partition("@")[2],
        REVISION: source_revision(),
        NAME: definition.name,
        "kit.definition": definition_digest(definition),
        "kit.source": source_digest(sources),
        "kit.lock": lock_digest(definition),
        BASE_ID: base_id,
        "kit.base-pinned": "yes" if pinned else "no",
    }


def _follow(stream: Iterator[dict[str, Any]], tag: str, say: Say) -> None:
    """Tell each step as it starts, keep the whole log in a file, and remove that when the build succeeds."""
    log = _log_path(tag)
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with log.open("w", encoding="utf-8") as file:
        for message in stream:
            text = str(message.get("stream") or message.get("error") or "")
            file.write(text if text.endswith("\n") or not text else f"{text}\n")
            if text.startswith("Step "):
                say(text.strip()[:160])
            if error := message.get("error"):
                if "no space left on device" in text:
                    raise EnvironmentFault("the engine's disk is full", f"free space ('docker system df'), see {log}")
                code = message.get("errorDetail", {}).get("code")
                reason = f"a step ended with exit code {code}" if code else engine_says(error)
                said = f": {' | '.join(tail)}" if tail else ""
                raise ImageFault(f"image {tag} could not be built: {reason}{said}", f"see {log}")
            tail.extend(
                line.strip()[:200] for line in text.splitlines() if line.strip() and not line.startswith(_CHATTER)
            )
    log.unlink(missing_ok=True)


def _log_path(tag: str) -> Path:
    return _cache("logs") / f"build-{tag.replace(':', '-')}.log"


def _cache(name: str) -> Path:
    folder = cache_folder() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"{folder}: {error.strerror}", "check its permissions, or set KIT_CACHE") from None
    return folder
