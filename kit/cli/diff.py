"""``kit diff``: what is different between two runs."""

from pathlib import Path
from typing import Annotated

import typer

_RUN = "Results folder or bundle."


def diff(
    before: Annotated[Path, typer.Argument(help=_RUN)],
    after: Annotated[Path, typer.Argument(help=_RUN)],
    json: Annotated[
        Path | None, typer.Option(help="Write the difference as JSON to this file; - is standard output.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write it as one HTML file; - is standard output.")] = None,
) -> None:
    """Compare two runs: new failures, lost margins, cases, environment.

    Says what the files say; 'kit verify' says whether to believe them. Exit code 1: something got worse.
    """
    from kit.errors import ExitCode
    from kit.results.diff import difference_of
    from kit.results.diff_text import to_html, to_text

    difference = difference_of(before, after)
    _write(json, difference.model_dump_json(indent=1) + "\n")
    _write(html, to_html(difference))
    if Path("-") not in (json, html):
        print(to_text(difference))
    raise typer.Exit(ExitCode.NOT_CONFORMING if difference.worse else ExitCode.CONFORMS)


def _write(path: Path | None, text: str) -> None:
    from kit.errors import UsageFault

    if path == Path("-"):
        print(text, end="")
    elif path is not None:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageFault(f"{path} cannot be written: {error.strerror}", "name another file") from None
