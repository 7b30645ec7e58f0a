"""Hands a built image to a registry, and tells the digest by which others get exactly it."""

from collections.abc import Callable

import docker

from kit.errors import ImageFault
from kit.host.engine_faults import engine_faults, engine_says, patient
from kit.host.image_store import check_image
from kit.image import ImageDefinition


def push_image(
    client: "docker.DockerClient", definition: ImageDefinition, repository: str, say: Callable[[str], None]
) -> str:
    """Push the image of this kit to ``repository``, such as ``registry.example:5000/lab/kit-cpu``, under its content's tag.

    Returns:
        the reference by digest, ``REPOSITORY@sha256:…``, which the registry gave.

    Raises:
        ImageFault: not built, or the registry refused. EnvironmentFault: no engine.
    """
    built = check_image(client, definition)
    tag = built.tag.rpartition(":")[2]
    digest = ""
    with patient(client), engine_faults():
        client.images.get(built.id).tag(repository, tag)
        try:
            for message in client.images.push(repository, tag=tag, stream=True, decode=True):
                if error := message.get("error"):
                    raise ImageFault(
                        f"{repository}:{tag} could not be pushed: {engine_says(error)}", "see the registry's log"
                    )
                digest = message.get("aux", {}).get("Digest") or digest
        finally:
            client.images.remove(f"{repository}:{tag}")
    if not digest:
        raise ImageFault(f"the registry of {repository} told no digest", "look at its log")
    say(f"pushed: {repository}:{tag}")
    return f"{repository}@{digest}"
