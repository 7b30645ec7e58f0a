"""``kit assets``: list, lock, fetch and verify the pinned models, adapters and reference data."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kit.asset import Asset

app = typer.Typer(no_args_is_help=True)
_NAMES = "Names of rows in profiles/assets.toml, in any case."
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help=_NAMES)]


@app.command("list")
def list_assets() -> None:
    """List the assets, one a line: locked or not, in the cache or not, and who needs them."""
    from kit.asset import load_assets
    from kit.cli.transfer import size_text
    from kit.host.asset_cache import state_of

    assets = load_assets()
    width = max(map(len, assets), default=0)
    for asset in assets.values():
        notes = "".join(f", {word}" for word, holds in (("gated", asset.gated), ("opt-in", asset.opt_in)) if holds)
        size = size_text(asset.size) if asset.locked else "-"
        print(
            f"{asset.name:<{width}} {state_of(asset):<11} {size:>9}  "
            f"{asset.type} {asset.repository} ({asset.license}{notes}): {asset.used_by}"
        )


@app.command("lock")
def lock_assets(
    names: Names,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit to lock.")] = "main",
) -> None:
    """Ask the hub for commit, files and SHA-256 of each NAME, and write them into profiles/assets.toml."""
    from kit.asset import assets_file
    from kit.cli.transfer import size_text
    from kit.host.asset_lock import lock_asset, write_asset
    from kit.host.hub import Hub

    path = assets_file()
    for asset in _found(names):
        locked = lock_asset(asset, Hub(), revision)
        changed = write_asset(path, locked)
        print(
            f"{locked.name}: {locked.revision}, {len(locked.files)} files, {size_text(locked.size)}: "
            f"{'written' if changed else 'unchanged'}",
            flush=True,
        )


@app.command("fetch")
def fetch_assets(names: Names) -> None:
    """Fetch each NAME at its locked revision into the cache, and check every file. Goes on where an earlier fetch stopped."""
    from rich.console import Console

    from kit.cli.transfer import Transfer
    from kit.host.asset_fetch import fetch_asset
    from kit.host.hub import Hub

    with Transfer(Console()) as display:
        for asset in _found(names):
            fetch_asset(asset, Hub, display)


@app.command("verify")
def verify_assets(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help=_NAMES + " Default: all that the cache has.")
    ] = None,
) -> None:
    """Read every file of each NAME in the cache and hold it against its SHA-256; needs no network."""
    from rich.console import Console

    from kit.asset import load_assets
    from kit.cli.transfer import Transfer
    from kit.host.asset_cache import State, state_of, verify_asset

    cached = (State.UNVERIFIED, State.READY)
    assets = _found(names) if names else [asset for asset in load_assets().values() if state_of(asset) in cached]
    with Transfer(Console()) as display:
        for asset in assets:
            verify_asset(asset, display)
            display.line(f"{asset.name}: {len(asset.files)} files, every SHA-256 is right")
        if not assets:
            display.line("the cache has no asset")


def _found(names: list[str]) -> "list[Asset]":
    """All rows, before anything is done for the first of them."""
    from kit.asset import find_asset

    return [find_asset(name) for name in names]
