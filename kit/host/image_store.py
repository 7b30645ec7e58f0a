"""The images that an engine holds: found by what they were built from, never by a name that others may move."""

import contextlib
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound

from kit.errors import ImageFault
from kit.host.engine_faults import engine_faults
from kit.image import ImageDefinition, content_tag, definition_digest, load_images, source_digest, source_files

BASE_NAME = "org.opencontainers.image.base.name"
BASE_DIGEST = "org.opencontainers.image.base.digest"
BASE_ID = "kit.base-id"
NAME = "kit.image"
STACK = "kit.stack"
_DAY_SECONDS = 86400


@dataclass(frozen=True)
class BuiltImage:
    """An image of the engine: id (``sha256:…``), tag by content, labels, and size in bytes."""

    id: str
    tag: str
    labels: dict[str, str]
    size: int

    @property
    def base_is_pinned(self) -> bool:
        """Whether it stands on a base that its definition held by digest."""
        return self.labels.get("kit.base-pinned") == "yes"


def find(client: "docker.DockerClient", reference: str) -> Any | None:
    """The engine's image with this tag or id, or None."""
    try:
        return client.images.get(reference)
    except ImageNotFound:
        return None


def check_image(client: "docker.DockerClient", definition: ImageDefinition) -> BuiltImage:
    """The built image of this definition and of kit's present sources, for the engine's machine; never another one.

    Raises:
        ImageFault: not built, built from something else (what differs is named), or for another architecture.
    """
    sources = source_files()
    tag = content_tag(definition, sources)
    with engine_faults():
        image = find(client, tag) or find(client, definition.tag)
    if image is None:
        raise ImageFault(f"image {tag} is not built", f"run '{definition.build_command}'")
    labels: dict[str, str] = image.labels or {}
    if different := differing(definition, labels, sources):
        shown = tag if tag in image.tags else definition.tag
        raise ImageFault(
            f"image {shown} was built from something else: {' and '.join(different)} differ",
            f"run '{definition.build_command}{_base_option(definition, labels)}'",
        )
    with engine_faults():
        here = str(client.version()["Arch"])
    if (made_for := str(image.attrs["Architecture"])) != here:
        raise ImageFault(
            f"image {tag} is for {made_for}, and the engine's machine is {here}",
            f"run '{definition.build_command}{_base_option(definition, labels)}'",
        )
    return BuiltImage(image.id, tag, labels, int(image.attrs["Size"]))


def differing(definition: ImageDefinition, labels: dict[str, str], sources: dict[str, bytes]) -> list[str]:
    """From what an image was built otherwise than this kit would build it, by its labels; empty: it is this kit's."""
    wanted = {
        "its name": (NAME, definition.name),
        "its TOML, lock or Dockerfile": ("kit.definition", definition_digest(definition)),
        "kit's own sources": ("kit.source", source_digest(sources)),
    }
    return [words for words, (key, value) in wanted.items() if labels.get(key) != value]


def _base_option(definition: ImageDefinition, labels: dict[str, str]) -> str:
    """`` --base NAME`` where the built image stands on another base than the definition's."""
    base = labels.get(BASE_NAME, "")
    own = labels.get("kit.base-pinned") != "no" or base in ("", definition.base.reference)
    return "" if own else f" --base {shlex.quote(base)}"


@dataclass(frozen=True)
class Leftover:
    """An image or stack of kit that this checkout no longer builds: its id, its tags, and days since it was last tagged."""

    id: str
    tags: tuple[str, ...]
    days: float


def leftovers(client: "docker.DockerClient", min_days: float) -> tuple[Leftover, ...]:
    """Images of other content than this kit's, then the stacks on which no other image stands.

    All were tagged last at least `min_days` ago, and no container uses them.

    Raises:
        KitError: the engine refuses or does not answer.
    """
    sources = source_files()
    current = {content_tag(definition, sources) for definition in load_images().values()}
    with engine_faults():
        used = {container.attrs["ImageID"] for container in client.containers.list(all=True, sparse=True)}
        images = client.images.list(filters={"label": NAME})
        stacks = [image for image in client.images.list(filters={"label": STACK}) if NAME not in image.labels]
    old = [i for i in images if i.id not in used and _days(i.attrs) >= min_days and not set(i.tags) & current]
    needed = {image.labels.get(STACK) for image in images if image not in old}
    old_stacks = [i for i in stacks if i.labels[STACK] not in needed and _days(i.attrs) >= min_days]
    return tuple(Leftover(image.id, tuple(sorted(image.tags)), _days(image.attrs)) for image in (*old, *old_stacks))


def remove(client: "docker.DockerClient", leftover: Leftover) -> bool:
    """Remove an image under all its names; False where the engine keeps it because it is in use after all.

    Raises:
        KitError: the engine does not answer.
    """
    with engine_faults(), _in_use_is_no_fault():
        for reference in (*leftover.tags, leftover.id):
            with contextlib.suppress(ImageNotFound):
                client.images.remove(reference)
    return find(client, leftover.id) is None


@contextlib.contextmanager
def _in_use_is_no_fault() -> Iterator[None]:
    try:
        yield
    except APIError as error:
        if error.status_code != 409:
            raise


def _days(attributes: dict[str, Any]) -> float:
    """Days since the image got a name, else since it was made (RFC 3339, nanoseconds)."""
    tagged = str(attributes.get("Metadata", {}).get("LastTagTime") or "")
    text = tagged if tagged and not tagged.startswith("0001") else str(attributes["Created"])
    return (time.time() - datetime.fromisoformat(f"{text[:19]}+00:00").timestamp()) / _DAY_SECONDS
