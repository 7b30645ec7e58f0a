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
        image = "cannot be run yet" if profile.missing else f"image {profile.image}"
        print(f"{profile.name:<14} {profile.architecture:<7} {image:<17} {profile.title}{also}")


@app.command("show")
def show_profile(
    name: Annotated[str, typer.Argument(help="Name or alias, in any case.")],
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As 'kit run --set'; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, as a run writes it into its folder.")] = False,
) -> None:
    """Print the effective profile, and for every value who set it: a file, the command line, or kit's default."""
    import json

    from kit.profile import find_layers
    from kit.profile_layers import leaves

    profile, layers = find_layers(name, changes=tuple(change or ()))
    if as_json:
        print(profile.model_dump_json(indent=2))
        return
    lines = [
        (f"{key} = {json.dumps(value, ensure_ascii=False)}", layers.origin_of(key))
        for key, value in leaves(profile.model_dump(mode="json"))
    ]
    width = min(max(len(text) for text, _ in lines), 60)
    for text, origin in lines:
        print(f"{text:<{width}}  # {origin}")
