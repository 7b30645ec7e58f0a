"""The result on a terminal or in a log: a table of all cases, what a reader needs to judge it, and one verdict line."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kit.errors import ExitCode
from kit.results.model import CaseResult, RunResult, Status
from kit.results.text import amount, factor, number, one_line
from kit.results.triage_text import verdict_lines

_MOST_ROWS = 400
_STYLES = {
    Status.PASSED: "green",
    Status.FAILED: "bold red",
    Status.CRASHED: "bold red",
    Status.TIMEOUT: "bold red",
    Status.MISSING: "bold red",
    Status.ENVIRONMENT: "bold magenta",
    Status.SKIPPED: "dim",
    Status.WAIVED: "yellow",
    Status.UNEXPECTED_PASS: "bold yellow",
}
_VERDICTS = {
    ExitCode.CONFORMS: "CONFORMS",
    ExitCode.NOT_CONFORMING: "DOES NOT CONFORM",
    ExitCode.ENVIRONMENT: "NOT FIT TO JUDGE: the environment is at fault",
    ExitCode.IMAGE: "NOT RUN: an image or asset is at fault",
    ExitCode.INCOMPLETE: "INCOMPLETE",
    ExitCode.INTERRUPTED: "INTERRUPTED",
}
_ASCII = str.maketrans({"×": "x", "²": "^2", "½": "1/2", "Δ": "d", "…": "~", "·": "-"})


def verdict_line(result: RunResult, lost: ExitCode | None = None) -> str:
    """One line: the verdict, its exit code, and how many cases have each status.

    Args:
        lost: the exit code of a run whose reports could not be written; its verdict is then on record nowhere.
    """
    counts = result.counts
    parts = [f"{counts[status]} {status}" for status in Status if counts[status]]
    if result.problems:
        parts.append(f"{len(result.problems)} problem{'s' if len(result.problems) > 1 else ''} of the run")
    code = result.exit_code if lost is None else lost
    verdict = _VERDICTS[result.exit_code] if lost is None else "REPORTS LOST"
    if result.part:
        conforms = lost is None and result.exit_code is ExitCode.CONFORMS
        verdict = f"{'THE CASES THAT WERE CHOSEN CONFORM' if conforms else verdict}, {result.part} planned"
    return f"{verdict} (exit code {code:d}): {', '.join(parts) or 'no case'}"


def print_result(
    result: RunResult,
    console: Console,
    files: Sequence[Path] = (),
    lost: str | None = None,
    lost_code: ExitCode = ExitCode.ENVIRONMENT,
) -> None:
    """Print `result` and the names of the reports in `files`. Fits 80 columns; no colour unless on a terminal.

    Args:
        lost: why reports could not be written. The run then ends with `lost_code`, whatever its cases say.
    """
    rows = _rows(result.cases)
    if rows:
        console.print(_table(rows, console))
    if hidden := len(result.cases) - len(rows):
        _say(
            console,
            f"and {hidden} more cases",
            f"only {_MOST_ROWS} fit here, what did not pass first; the reports have all",
            "",
        )
    console.print()
    for (status, reason), ids in _reasons(result).items():
        label = ids[0] + (f" and {len(ids) - 1} more" if len(ids) > 1 else "")
        told = reason.startswith(status.value)  # "waived by known-fault until ..."
        _say(console, label if told else f"{label}: {status}", reason, _STYLES[status])
    for case in result.cases:
        for line in verdict_lines(case):
            _say(console, f"{case.id}: triage", line, "bold")
    for problem in result.problems:
        _say(console, "problem", problem.text, "bold red")
    for warning in result.warnings:
        _say(console, "warning", warning, "bold yellow")
    if result.does_not_prove:
        _say(console, f"{result.profile.name} does not prove everything", "", "bold")
        for text in result.does_not_prove:
            _say(console, "  -", text, "", mark=" ")
    for path in files:
        _say(console, "written", str(path), "", wrap=False)
    if lost is not None:
        _say(console, "reports lost", lost, "bold red")
    style = "bold green" if result.exit_code is ExitCode.CONFORMS and lost is None else "bold red"
    line = verdict_line(result, lost_code if lost is not None else None)
    console.print(Text(_fit(console, line), style=style))


def _rows(cases: Sequence[CaseResult]) -> Sequence[CaseResult]:
    """The cases of the table; where they are too many to read, what did not pass goes first."""
    if len(cases) <= _MOST_ROWS:
        return cases
    return sorted(cases, key=lambda case: case.status is Status.PASSED)[:_MOST_ROWS]


def _reasons(result: RunResult) -> dict[tuple[Status, str], list[str]]:
    """Which cases share a status and its reason, in the order of the cases; warnings tell of unexpected passes."""
    grouped: dict[tuple[Status, str], list[str]] = {}
    for case in result.cases:
        if case.reason and case.status is not Status.UNEXPECTED_PASS:
            grouped.setdefault((case.status, case.reason), []).append(case.id)
    return grouped


def _say(console: Console, label: str, text: str, style: str, mark: str = ": ", wrap: bool = True) -> None:
    line = Text.assemble((_fit(console, label), style), mark if text else "", _fit(console, text))
    console.print(line, soft_wrap=not wrap)


def _table(cases: Sequence[CaseResult], console: Console) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("case", overflow="fold", ratio=1)
    table.add_column("status", no_wrap=True)
    table.add_column("worst value", justify="right", overflow="fold")
    table.add_column("limit", overflow="fold")
    table.add_column("margin", justify="right", no_wrap=True)
    for case in cases:
        worst = case.worst
        value = limit = margin = ""
        if worst is not None and worst.limit is not None:
            value = amount(worst.value, worst.unit)
            limit = f"{worst.comparison} {number(worst.limit)} {worst.source}"
            margin = factor(worst.margin)
        cells = [_fit(console, cell) for cell in (case.id, case.status.value, value, limit, margin)]
        table.add_row(*(Text(cell, style=_STYLES[case.status] if n == 1 else "") for n, cell in enumerate(cells)))
    return table


def _fit(console: Console, text: str) -> str:
    """`text` on one line, in characters that the console's encoding has."""
    line = one_line(text, 600)
    try:
        line.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return line.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")
    return line
