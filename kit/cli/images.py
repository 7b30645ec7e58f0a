"""``kit images``: list, lock, build and prune the pinned images."""

import os
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of a definition in images/, in any case.")]
Python = Annotated[
    str | None, typer.Option(help="For a base with this Python, such as 3.11; it has a lock of its own.")
]
Index = Annotated[
    str | None, typer.Option(help="Take wheels from this package index instead of pip's configured ones.")
]


@app.command("list")
def list_images() -> None:
    """List the images, one a line, and what holds their base fast."""
    from kit.image import load_images

    for image in load_images().values():
        print(f"{image.name:<5} {image.tag:<11} {'pinned' if image.base.digest else 'tag only':<9} {image.title}")


@app.command("lock")
def lock_image(name: Name, python: Python = None, index: Index = None) -> None:
    """Resolve the wheels of NAME anew, and ask the registry for the digest of its base."""
    from kit.errors import KitError
    from kit.host.docker_runtime import connect
    from kit.host.image_lock import lock_wheels, registry_digest, write_base_digest
    from kit.image import find_image

    image = find_image(name).on_python(python)
    _use_index(index)
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
    python: Python = None,
    index: Index = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Use no layer of an earlier build.")] = False,
) -> None:
    """Fetch the wheels of NAME and build its image, without a network in any step."""
    from kit.host.docker_runtime import connect
    from kit.host.image_build import BuildOptions, build_image
    from kit.image import find_image

    image = find_image(name).on_python(python)
    _use_index(index)
    build_image(
        connect(), image, BuildOptions(base=base, use_cache=not no_cache), say=lambda line: print(line, flush=True)
    )


@app.command("verify")
def verify(
    name: Name,
    python: Python = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch the wheels, where they are not here, to compare.")
    ] = False,
) -> None:
    """Start the image of NAME without a network, and compare what lies in it with its definition, lock and base."""
    from kit.errors import ExitCode
    from kit.host.docker_runtime import connect
    from kit.host.image_verify import verify_image
    from kit.host.wheelhouse import fetch_wheels, held_wheels
    from kit.image import find_image

    image = find_image(name).on_python(python)
    client = connect()
    verified = verify_image(client, image, (lambda image: fetch_wheels(image).wheels) if fetch else held_wheels)
    for text in verified.held:
        print(f"ok           {text}")
    for text in verified.not_checked:
        print(f"not checked  {text}")
    for text in verified.findings:
        print(f"DIFFERS      {text}")
    if verified.findings:
        raise typer.Exit(ExitCode.IMAGE)


def _use_index(index: str | None) -> None:
    """pip reads it from its environment."""
    if index is not None:
        os.environ["PIP_INDEX_URL"] = index


@app.command("prune")
def prune(
    days: Annotated[float, typer.Option(min=0, help="Keep what was built within the last DAYS.")] = 7,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Remove kit's images of other definitions or sources than this checkout's. What a container uses stays."""
    from kit.host.docker_runtime import connect
    from kit.host.image_store import leftovers, remove

    client = connect()
    for image in leftovers(client, days):
        gone = dry_run or remove(client, image)
        names = " ".join(image.tags) or image.id
        print(f"{'kept, in use' if not gone else 'would go' if dry_run else 'removed'}: {names}, {image.days:.1f} days")
