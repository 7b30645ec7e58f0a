"""``kit images``: list, lock, build, verify, hand over and prune the pinned images."""

import os
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of a definition in images/, in any case.")]
Python = Annotated[
    str | None, typer.Option(help="For a base with this Python, such as 3.11; it has a lock of its own.")
]
Archive = Annotated[Path, typer.Argument(help="The file, NAME.tar.zst.", dir_okay=False)]
Index = Annotated[
    str | None, typer.Option(help="Take wheels from this package index instead of pip's configured ones.")
]


@app.command("list")
def list_images() -> None:
    """List the images, one a line, and what holds their base fast."""
    from kit.image import content_tag, load_images

    images = load_images().values()
    wide = max(len(image.name) for image in images)
    for image in images:
        print(
            f"{image.name:<{wide}} {content_tag(image):<{wide + 19}} {'pinned' if image.base.digest else 'tag only':<9} {image.title}"
        )


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
    if image.base.candidate not in ("", digest):
        print(f"base: others quote {image.base.candidate} for {image.base.reference}; the registry says otherwise")


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


@app.command("save")
def save(name: Name, archive: Archive, python: Python = None) -> None:
    """Write the built image of NAME to ARCHIVE (.tar.zst), and its checksum beside it, for sites without a network."""
    from kit.host.docker_runtime import connect
    from kit.host.image_archive import save_image, sums_file
    from kit.image import find_image

    built = save_image(connect(), find_image(name).on_python(python), archive)
    print(
        f"saved: {built.tag} {built.id}, {archive.stat().st_size / 1e9:.2f} GB, checksum in {sums_file(archive).name}"
    )


@app.command("load")
def load(name: Name, archive: Archive, python: Python = None) -> None:
    """Load the image of NAME from ARCHIVE, after its checksum and labels were compared."""
    from kit.host.docker_runtime import connect
    from kit.host.image_archive import load_image
    from kit.image import find_image

    built = load_image(connect(), find_image(name).on_python(python), archive)
    print(f"loaded: {built.tag} {built.id}")


@app.command("push")
def push(
    name: Name,
    repository: Annotated[str, typer.Argument(help="Where to, such as registry.example:5000/lab/kit-cpu.")],
    python: Python = None,
) -> None:
    """Push the built image of NAME to a registry, and tell its digest there."""
    from kit.host.docker_runtime import connect
    from kit.host.image_push import push_image
    from kit.image import find_image

    print(push_image(connect(), find_image(name).on_python(python), repository, say=print))


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
