"""``kit report``: the reports of a run, made again from what it left."""

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

    Where a full disk or a kill left no result.json, it and the missing reports are made in the folder, from plan and events.

    With --since it also says what became of each case in an earlier run, and what changed on the machine.
    """
    from kit.errors import EnvironmentFault
    from kit.results.files import write_atomically
    from kit.results.report.render import to_html

    rescued = _rescued(run) if run.is_dir() else None
    if rescued is not None and output is None and since is None:
        return
    result = rescued or _result_in(run)
    before = _result_in(since) if since is not None else None
    path = output or Path(f"report-{result.run_id}.html")
    try:
        write_atomically(path, to_html(result, before))
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be written: {error.strerror}", "name another file with --output"
        ) from None
    print(f"written: {path}")


def _rescued(folder: Path) -> "RunResult | None":
    """The result of a folder that has none, derived and written there with the reports that are missing."""
    from kit.results.bundle import read_run
    from kit.results.console import verdict_line
    from kit.results.files import RESULT_FILE, write_all
    from kit.results.stored import PLAN_FILE, derive_result

    if (folder / RESULT_FILE).exists() or not (folder / PLAN_FILE).exists():
        return None
    result = derive_result(read_run(folder))
    print(f"{RESULT_FILE} is missing, so it is derived from the plan and the events: {verdict_line(result)}")
    for path in write_all(result, folder, keep=True):
        print(f"written: {path}")
    return result


def _result_in(path: Path) -> "RunResult":
    from kit.results.bundle import read_run
    from kit.results.files import RESULT_FILE
    from kit.results.model import load_result
    from kit.results.stored import existing, read_result

    if path.is_dir():
        return load_result(existing(path) / RESULT_FILE)
    if path.suffix == ".json" or not path.exists():
        return load_result(path)
    return read_result(read_run(path), str(path))
