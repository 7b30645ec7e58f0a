"""A self-test's result as text: a table on a terminal, and one HTML file with the matrix of faults and batteries."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kit.results.text import number, printable
from kit.selftest.comparison import comparison, share
from kit.selftest.outcome import FaultOutcome, SelftestResult
from kit.selftest.upstream import RULES, together

_HERE = Path(__file__).parent
_CSS = _HERE.parent / "results" / "report" / "report.css"
_STYLES = {"caught": "green", "not caught": "bold red", "not asked": "yellow"}


def print_selftest(result: SelftestResult, console: Console) -> None:
    """A row per fault, then the false alarms, then one line that sums up."""
    table = Table(box=None, pad_edge=False)
    for title in ("fault", "verdict", "by", "margin", "upstream's rules"):
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
    if result.sweeps:
        console.print(_sweeps(result))
    if result.faults:
        console.print(_comparison(result))
    for why, names in left_out(result).items():
        console.print(Text(printable(f"not asked: {', '.join(names)} ({why})"), "yellow"))
    for alarm in result.alarms:
        console.print(Text(f"FALSE ALARM  {printable(alarm)}", "bold red"))
    console.print(sentence(result))


def sentence(result: SelftestResult) -> str:
    """One line on the whole: how many were caught, how many false alarms, and what upstream's rules would have caught."""
    caught = sum(outcome.verdict == "caught" for outcome in result.faults)
    seen, judged = comparison(result)[-1].upstream
    upstream = f"; upstream's rules see {seen} of {judged} on the same answers" if judged else ""
    cases = len(result.alarms) + result.quiet
    alarms = f"{len(result.alarms)} false alarms in {cases} fault-free cases of {result.rounds} rounds"
    stopped = "stopped before all was asked: " if result.stopped else ""
    missing = f"; {result.unanswered} fault-free cases gave no verdict" if result.unanswered else ""
    return (
        f"{stopped}caught {caught} of {len(result.faults)} faults; {alarms}{missing}{upstream}; {result.seconds:.0f} s"
    )


def left_out(result: SelftestResult) -> dict[str, list[str]]:
    """The faults that were to be asked about and were not, by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, why in result.left_out.items():
        by_reason.setdefault(why, []).append(name)
    return by_reason


def margin_of(outcome: FaultOutcome) -> str:
    """How far outside its limit the clearest measurement is."""
    margin = outcome.caught[0].margin if outcome.caught else None
    return "" if margin is None else f"×{number(margin)}"


def upstream_of(outcome: FaultOutcome) -> str:
    """What upstream's rules say of the same answers, together; and which of them caught it."""
    rules = [rule for rule, said in outcome.upstream.items() if said == "caught"]
    said = together(outcome.upstream.values())
    return "" if said == "cannot judge" else f"caught: {', '.join(rules)}" if rules else said


def percent(value: float | None) -> str:
    """A deviation as a percentage; empty where there is none."""
    return "" if value is None else f"{number(100.0 * value)} %"


def _sweeps(result: SelftestResult) -> Table:
    table = Table(box=None, pad_edge=False, title="smallest strengths that are seen", title_justify="left")
    for title in ("fault", "dtype", "case", "seen from", "off by", "by", "× limit", "below", "× limit", "without"):
        table.add_column(title, overflow="fold")
    for one in result.sweeps:
        table.add_row(
            one.fault,
            one.dtype,
            one.case,
            _plain(one.smallest) or one.status,
            percent(one.deviation),
            one.measurement,
            _plain(one.margin),
            _plain(one.below),
            _plain(one.margin_below),
            _plain(one.free),
        )
    return table


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}" if abs(value - 1.0) < 0.1 else number(value)


def _comparison(result: SelftestResult) -> Table:
    table = Table(box=None, pad_edge=False, title="caught / could judge, on the same answers", title_justify="left")
    for title in ("at fault", "kit", *(rule.name for rule in RULES), "upstream's together"):
        table.add_column(title, overflow="fold")
    for row in comparison(result):
        table.add_row(row.where, f"{row.kit} / {row.faults}", *row.cells)
    alarms = map(share, result.upstream_alarms.values())
    table.add_row("no fault", f"{len(result.alarms)} / {len(result.alarms) + result.quiet}", *alarms, "")
    return table


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
        percent=percent,
        plain=_plain,
        rules=RULES,
        comparison=comparison(result),
        left_out=left_out(result),
        css=Markup(_CSS.read_text(encoding="utf-8")),
    )
    return text.encode("utf-8", "backslashreplace")
