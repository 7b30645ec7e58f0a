"""``kit bundle``: a results folder as one file to hand over."""

from pathlib import Path
from typing import Annotated

import typer


def bundle(
    folder: Annotated[Path, typer.Argument(help="Results folder of a run.")],
    output: Annotated[Path | None, typer.Option(help="Default: FOLDER.tar.zst.")] = None,
    sign_key: Annotated[
        Path | None, typer.Option(help="Sign with this OpenSSH private key (needs ssh-keygen, 8.1 or newer).")
    ] = None,
) -> None:
    """Pack FOLDER into one .tar.zst, without user names, home folders and secrets."""
    from kit.results.bundle import make_bundle

    path = make_bundle(folder, output, sign_key)
    print(f"{path}: {path.stat().st_size:,} bytes{', signed' if sign_key else ''}")
