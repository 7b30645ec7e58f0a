"""``kit triage``: why a text is not the reference's."""

from pathlib import Path
from typing import Annotated

import typer


def triage(
    run: Annotated[Path, typer.Argument(metavar="BUNDLE|FOLDER", help="What 'kit bundle' or 'kit run' wrote.")],
    case: Annotated[str, typer.Argument(metavar="CASE", help="Id of a case that compares texts.")],
) -> None:
    """Judge again, from what a run recorded, whether a differing text is a near tie, a drifting reference or the subject's fault.

    Nothing is computed anew. Exit code 1: the subject's fault, or a verdict that does not follow from the record.
    """
    from rich.console import Console

    from kit.errors import ExitCode
    from kit.names import unknown
    from kit.results.bundle import read_run
    from kit.results.stored import existing, read_result
    from kit.results.triage_text import print_triage, triage_of

    result = read_result(read_run(existing(run)), str(run))
    found = next((one for one in result.cases if one.id == case), None)
    if found is None:
        raise unknown("case", case, [one.id for one in result.cases])
    triaged = triage_of(found)
    print_triage(found, triaged, Console(highlight=False))
    sound = all(one.is_sound for one in triaged)
    raise typer.Exit(ExitCode.CONFORMS if sound else ExitCode.NOT_CONFORMING)
