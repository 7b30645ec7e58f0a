"""``kit profiles``: which hardware kit knows."""

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_profiles() -> None:
    """List the profiles, one a line."""
    from kit.profile import load_profiles

    for profile in load_profiles().values():
        also = f" (also: {', '.join(profile.aliases)})" if profile.aliases else ""
        print(f"{profile.name:<14} {profile.architecture:<7} image {profile.image:<5} {profile.title}{also}")


@app.command("show")
def show_profile(name: Annotated[str, typer.Argument(help="Name or alias, in any case.")]) -> None:
    """Print a profile as JSON, defaults included."""
    from kit.profile import find_profile

    print(find_profile(name).model_dump_json(indent=2))
