"""Builds an image through the Docker SDK for Python, and recognises a built one by its labels."""

import contextlib
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import APIError, BuildError, DockerException, ImageNotFound

from kit.errors import EnvironmentFault, ImageFault
from kit.host.image_context import build_context
from kit.host.wheelhouse import fetch_wheels
from kit.image import ImageDefinition, definition_digest, lock_digest, source_digest, source_files
from kit.paths import cache_folder

BASE_NAME = "org.opencontainers.image.base.name"
BASE_DIGEST = "org.opencontainers.image.base.digest"
_STEP_SECONDS = 3600
_TAIL_LINES = 4
_CHATTER = ("Removing intermediate container", " --->", "Step ")
Say = Callable[[str], None]


@dataclass(frozen=True)
class BuildOptions:
    """How to build: on another base than the definition's, and whether layers of earlier builds may be used."""

    base: str | None = None
    use_cache: bool = True


@dataclass(frozen=True)
class BuiltImage:
    """An image of the engine: id (``sha256:…``), tag, labels, and size in bytes."""

    id: str
    tag: str
    labels: dict[str, str]
    size: int

    @property
    def base_is_pinned(self) -> bool:
        """Whether it stands on a base that its definition held by digest."""
        return self.labels.get("kit.base-pinned") == "yes"


def build_image(
    client: "docker.DockerClient", definition: ImageDefinition, options: BuildOptions, say: Say
) -> BuiltImage:
    """Fetch the wheels, build the image without a network in its steps, and tag it.

    The previous image of that tag is removed when nothing uses it.

    Raises:
        ImageFault: no base, no wheel, or a step that failed (the log is kept and named).
        EnvironmentFault: no network where one is needed, a full disk, or an engine that stopped answering.
    """
    started = time.monotonic()
    house = fetch_wheels(definition)
    seconds = time.monotonic() - started
    say(f"wheels: {len(house.wheels)}, {house.size / 1e6:.0f} MB, {house.fetched} fetched ({seconds:.0f} s)")
    base = options.base or definition.base_reference
    base_image = _base_image(client, base, say)
    previous = _find(client, definition.tag)
    sources = source_files()
    labels = _labels(definition, options, base_image, sources)
    with build_context(definition, house.wheels, sources) as context, _engine_faults():
        stream = client.api.build(
            fileobj=context,
            custom_context=True,
            dockerfile="Dockerfile",
            tag=definition.tag,
            buildargs={
                "BASE_IMAGE": base,
                "EXPECTS": " ".join(f"{k}=={v}" for k, v in sorted(definition.expects.items())),
            },
            labels=labels,
            network_mode="none",
            nocache=not options.use_cache,
            rm=True,
            forcerm=True,
            timeout=_STEP_SECONDS,
            decode=True,
        )
        _follow(stream, definition, say)
        image = client.images.get(definition.tag)
    built = BuiltImage(image.id, definition.tag, labels, int(image.attrs["Size"]))
    if previous is not None and previous.id != built.id:
        with contextlib.suppress(DockerException):
            client.images.remove(previous.id)
    say(f"image: {built.tag}, {built.size / 1e9:.2f} GB ({time.monotonic() - started:.0f} s)")
    return built


def check_image(client: "docker.DockerClient", definition: ImageDefinition) -> BuiltImage:
    """The built image of this definition and of kit's present sources; never another one.

    Raises:
        ImageFault: not built, or built from something else (what differs is named).
    """
    with _engine_faults():
        image = _find(client, definition.tag)
    if image is None:
        raise ImageFault(f"image {definition.tag} is not built", f"run '{definition.build_command}'")
    labels: dict[str, str] = image.labels or {}
    wanted = {"image": definition.name, "definition": definition_digest(definition), "source": source_digest()}
    words = {"image": "its name", "definition": "its TOML, lock or Dockerfile", "source": "kit's own sources"}
    different = [words[key] for key, value in wanted.items() if labels.get(f"kit.{key}") != value]
    if different:
        raise ImageFault(
            f"image {definition.tag} was built from something else: {' and '.join(different)} differ",
            f"run '{definition.build_command}{_base_option(definition, labels)}'",
        )
    return BuiltImage(image.id, definition.tag, labels, int(image.attrs["Size"]))


def _base_option(definition: ImageDefinition, labels: dict[str, str]) -> str:
    """`` --base NAME`` where the built image stands on another base than the definition's."""
    base = labels.get(BASE_NAME, "")
    own = labels.get("kit.base-pinned") != "no" or base in ("", definition.base.reference)
    return "" if own else f" --base {shlex.quote(base)}"


def _find(client: "docker.DockerClient", tag: str) -> Any | None:
    try:
        return client.images.get(tag)
    except ImageNotFound:
        return None


def _base_image(client: "docker.DockerClient", base: str, say: Say) -> Any:
    """The base, pulled where it is not there."""
    with _engine_faults():
        if found := _find(client, base):
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


def _labels(
    definition: ImageDefinition, options: BuildOptions, base_image: Any, sources: dict[str, bytes]
) -> dict[str, str]:
    digests = [text.rpartition("@")[2] for text in base_image.attrs.get("RepoDigests") or ()]
    pinned = options.base is None and bool(definition.base.digest)
    return {
        "org.opencontainers.image.title": definition.title,
        "org.opencontainers.image.version": definition.version,
        BASE_NAME: options.base or definition.base.reference,
        BASE_DIGEST: definition.base.digest if pinned else next(iter(digests), ""),
        "kit.image": definition.name,
        "kit.definition": definition_digest(definition),
        "kit.source": source_digest(sources),
        "kit.lock": lock_digest(definition),
        "kit.base-id": base_image.id,
        "kit.base-pinned": "yes" if pinned else "no",
    }


def _follow(stream: Iterator[dict[str, Any]], definition: ImageDefinition, say: Say) -> None:
    """Tell each step as it starts, keep the whole log in a file, and remove that when the build succeeds."""
    log = _log_path(definition)
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
                raise ImageFault(f"image {definition.tag} could not be built: {reason}{said}", f"see {log}")
            tail.extend(
                line.strip()[:200] for line in text.splitlines() if line.strip() and not line.startswith(_CHATTER)
            )
    log.unlink()


def _log_path(definition: ImageDefinition) -> Path:
    folder = cache_folder() / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"{folder}: {error.strerror}", "check its permissions, or set KIT_CACHE") from None
    return folder / f"build-{definition.name}.log"


@contextlib.contextmanager
def _engine_faults() -> Iterator[None]:
    try:
        yield
    except (APIError, BuildError) as error:
        raise ImageFault(f"the engine refused: {engine_says(error)}", "see the message") from None
    except (DockerException, requests.RequestException) as error:
        raise EnvironmentFault(
            f"the engine stopped answering: {engine_says(error)}", "see its log, then try again"
        ) from None
    except OSError as error:
        where = error.filename or cache_folder()
        raise EnvironmentFault(f"{where}: {error.strerror}", "check permissions and free space") from None


def engine_says(error: object) -> str:
    """An engine's own words on one line, without the address that was asked."""
    return " ".join(str(getattr(error, "explanation", None) or error).split())[:300]
