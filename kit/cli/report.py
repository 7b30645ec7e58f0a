"""``kit report``: the HTML report, made again from a result alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kit.results.model import RunResult


def report(
    run: Annotated[Path, typer.Argument(metavar="FOLDER|BUNDLE|RESULT.JSON", help="What a run left.")],
    output: Annotated[
        Path | None, typer.Option(help="File to write. Default: report-RUN.html in the current folder.")
    ] = None,
    since: Annotated[
        Path | None, typer.Option(help="An earlier run, to tell since when a case fails and what changed.")
    ] = None,
) -> None:
    """Make the HTML report of a run again, offline; nothing in the run's folder is changed.

    With --since it also says what became of each case in an earlier run, and what changed on the machine.
    """
    from kit.errors import EnvironmentFault
    from kit.results.files import write_atomically
    from kit.results.report.render import to_html

    result = _result_in(run)
    before = _result_in(since) if since is not None else None
    path = output or Path(f"report-{result.run_id}.html")
    try:
        write_atomically(path, to_html(result, before))
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be written: {error.strerror}", "name another file with --output"
        ) from None
    print(f"written: {path}")


def _result_in(path: Path) -> "RunResult":
    from kit.results.bundle import read_run
    from kit.results.files import RESULT_FILE
    from kit.results.model import load_result
    from kit.results.stored import read_result

    if path.is_dir():
        return load_result(path / RESULT_FILE)
    if path.suffix == ".json" or not path.exists():
        return load_result(path)
    return read_result(read_run(path), str(path))
