"""``kit images``: list, lock and build the pinned images."""

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of a definition in images/, in any case.")]


@app.command("list")
def list_images() -> None:
    """List the images, one a line, and what holds their base fast."""
    from kit.image import load_images

    for image in load_images().values():
        print(f"{image.name:<5} {image.tag:<11} {'pinned' if image.base.digest else 'tag only':<9} {image.title}")


@app.command("lock")
def lock_image(name: Name) -> None:
    """Resolve the wheels of NAME anew, and ask the registry for the digest of its base."""
    from kit.errors import KitError
    from kit.host.docker_runtime import connect
    from kit.host.image_lock import lock_wheels, registry_digest, write_base_digest
    from kit.image import find_image

    image = find_image(name)
    count, changed = lock_wheels(image)
    print(f"wheels: {count}, {image.lock_path.name} {'written' if changed else 'unchanged'}")
    try:
        digest = registry_digest(connect(), image.base.reference)
    except KitError as fault:
        print(f"base: {image.base.digest or 'not pinned'}, kept as it was: {fault.problem}")
        return
    changed = write_base_digest(image.path, digest)
    print(f"base: {digest} {'written' if changed else 'unchanged'}")


@app.command("build")
def build(
    name: Name,
    base: Annotated[str | None, typer.Option(help="Build on this image instead of the definition's base.")] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Use no layer of an earlier build.")] = False,
) -> None:
    """Fetch the wheels of NAME and build its image, without a network in any step."""
    from kit.host.docker_runtime import connect
    from kit.host.image_build import BuildOptions, build_image
    from kit.image import find_image

    image = find_image(name)
    build_image(
        connect(), image, BuildOptions(base=base, use_cache=not no_cache), say=lambda line: print(line, flush=True)
    )
