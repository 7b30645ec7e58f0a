"""``kit verify``: whether a bundle may be believed."""

from pathlib import Path
from typing import Annotated

import typer


def verify(
    run: Annotated[Path, typer.Argument(metavar="BUNDLE|FOLDER", help="What 'kit bundle' or 'kit run' wrote.")],
    profile: Annotated[
        str | None, typer.Option(help="The profile that it must be of. Default: the one it names.")
    ] = None,
    allowed_signers: Annotated[
        Path | None, typer.Option(help="Accept only what one of these signed (file as in ssh-keygen(1)).")
    ] = None,
) -> None:
    """Check a bundle offline: checksums, schema, every mandatory case, every verdict derived again.

    Exit code 0: its record is true, be it green or red; 1: refused, with each reason on a line.
    """
    from kit.results.console import verdict_line
    from kit.results.verify import verify as check

    verification = check(run, profile, allowed_signers)
    for text in verification.refusals:
        print(f"refused: {text}")
    for text in verification.notes:
        print(f"note: {text}")
    result = verification.result
    if result is not None and not verification.refusals:
        print(
            f"verified: run {result.run_id}, profile {result.profile.name}, mode {result.mode}: {verdict_line(result)}"
        )
    raise typer.Exit(verification.exit_code)
