"""An image definition of two tiny wheels, with names that no other checkout on the same engine has."""

import uuid
from pathlib import Path

import docker
import pytest

from kit.digest import file_sha256
from kit.host import image_build, image_store, image_verify
from kit.host.lockfile import Pin, write_lock
from kit.host.wheelhouse import wheelhouse_folder
from kit.image import ImageDefinition, source_files
from tests.tiny_wheels import make_definition, make_wheel

SOURCES = source_files()
NAME = f"tiny-{uuid.uuid4().hex[:8]}"  # other checkouts may run these tests on the same engine
TAG = f"kit-{NAME}:1"
STACK_TAG = f"kit-{NAME}-stack:1"


def tiny(folder: Path, **settings: object) -> ImageDefinition:
    """A definition of two tiny wheels that lie in its wheelhouse already."""
    settings = {"name": NAME, "expects": {"alpha": "1.0", "beta": "1.*"}, **settings}
    definition = make_definition(folder, requirements=["alpha"], python="3.11", **settings)
    wheels = [make_wheel(folder / "wheels", "alpha", "1.0"), make_wheel(folder / "wheels", "beta", "1.5")]
    write_lock(
        definition, [Pin(path.name.split("-")[0], path.name.split("-")[1], file_sha256(path)) for path in wheels]
    )
    house = wheelhouse_folder(definition)
    house.mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        (house / wheel.name).write_bytes(wheel.read_bytes())
    return definition


def isolate(patch: pytest.MonkeyPatch, cache: Path) -> None:
    """A cache of its own, and one view of kit's sources, whoever edits them meanwhile."""
    patch.setenv("KIT_CACHE", str(cache))
    use_sources(patch, SOURCES)


def use_sources(patch: pytest.MonkeyPatch, sources: dict[str, bytes]) -> None:
    for module in (image_build, image_store, image_verify):
        patch.setattr(module, "source_files", lambda: sources)


def remove_all(client: docker.DockerClient, name: str) -> None:
    """Every image of a definition; those that stand on a stack go before it."""
    for image in sorted(client.images.list(f"kit-{name}"), key=lambda image: "kit.image" not in image.labels):
        client.images.remove(image.id, force=True)
