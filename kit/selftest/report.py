"""A self-test's result as text: a table on a terminal, and one HTML file with the matrix of faults and batteries."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kit.results.text import number, printable
from kit.selftest.outcome import FaultOutcome, SelftestResult

_HERE = Path(__file__).parent
_CSS = _HERE.parent / "results" / "report" / "report.css"
_STYLES = {"caught": "green", "not caught": "bold red", "not asked": "yellow"}


def print_selftest(result: SelftestResult, console: Console) -> None:
    """A row per fault, then the false alarms, then one line that sums up."""
    table = Table(box=None, pad_edge=False)
    for title in ("fault", "verdict", "by", "margin", "upstream's limit"):
        table.add_column(title, overflow="fold")
    for outcome in result.faults:
        first = outcome.caught[0] if outcome.caught else None
        table.add_row(
            outcome.fault,
            Text(outcome.verdict, _STYLES[outcome.verdict]),
            f"{first.case} ({first.measurement or first.status})" if first else "; ".join(outcome.missing[:1]),
            margin_of(outcome),
            upstream_of(outcome),
        )
    console.print(table)
    for alarm in result.alarms:
        console.print(Text(f"FALSE ALARM  {printable(alarm)}", "bold red"))
    console.print(sentence(result))


def sentence(result: SelftestResult) -> str:
    """One line on the whole: how many were caught, how many false alarms, and what upstream's limit would have caught."""
    caught = sum(outcome.verdict == "caught" for outcome in result.faults)
    measured = [outcome for outcome in result.faults if outcome.upstream is not None]
    seen = sum(bool(outcome.upstream) for outcome in measured)
    upstream = f"; upstream's limit of mean ½Δ² sees {seen} of {len(measured)} on the same answers" if measured else ""
    alarms = f"{len(result.alarms)} false alarms in {len(result.alarms) + result.quiet} fault-free cases"
    return f"caught {caught} of {len(result.faults)} faults; {alarms}{upstream}; {result.seconds:.0f} s"


def margin_of(outcome: FaultOutcome) -> str:
    """How far outside its limit the clearest measurement is."""
    margin = outcome.caught[0].margin if outcome.caught else None
    return "" if margin is None else f"×{number(margin)}"


def upstream_of(outcome: FaultOutcome) -> str:
    """What upstream's limit says of the same answers."""
    return "" if outcome.upstream is None else "caught" if outcome.upstream else "passed"


def selftest_html(result: SelftestResult) -> bytes:
    """One HTML file in UTF-8 that loads nothing."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    text = environment.get_template("selftest.html.j2").render(
        result=result,
        sentence=sentence(result),
        batteries=list(dict.fromkeys(name for outcome in result.faults for name in outcome.batteries)),
        margin_of=margin_of,
        upstream_of=upstream_of,
        css=Markup(_CSS.read_text(encoding="utf-8")),
    )
    return text.encode("utf-8", "backslashreplace")
