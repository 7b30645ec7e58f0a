"""A difference of two runs as text for a terminal and as one HTML file without scripts."""

from collections.abc import Iterator
from html import escape

from kit.results.diff import Change, Difference, LostMargin, Side
from kit.results.text import amount, factor, one_line

_STYLE = """
:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
body{max-width:70rem;margin:1rem auto;padding:0 1rem;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%}
td{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8884}
h1{font-size:1.3rem}h2{font-size:1.1rem;margin-top:1.5rem}
"""


def sections(difference: Difference) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Heading, and rows of what and how; sections without rows are left out."""
    environment = [(key, f"{a or 'not told'} → {b or 'not told'}") for key, (a, b) in difference.environment.items()]
    told = (
        ("new failures", [_change(change) for change in difference.new_failures]),
        ("lost margins", [_margin(margin) for margin in difference.lost_margins]),
        ("removed cases", [(name, "") for name in difference.removed]),
        ("other changes", [_change(change) for change in difference.changed]),
        ("fixed", [_change(change) for change in difference.fixed]),
        ("added cases", [(name, "") for name in difference.added]),
        ("environment", environment),
    )
    yield from ((heading, rows) for heading, rows in told if rows)


def _change(change: Change) -> tuple[str, str]:
    reason = f": {change.reason}" if change.reason else ""
    return change.case, one_line(f"{change.before} → {change.after}{reason}", 400)


def _margin(lost: LostMargin) -> tuple[str, str]:
    values = f"{amount(lost.value_before, lost.unit)} → {amount(lost.value_after, lost.unit)}"
    margins = f"margin {factor(lost.margin_before)} → {factor(lost.margin_after)}"
    return lost.case, f"{lost.measurement} {values}, {margins} (noise {factor(lost.noise)})"


def _side(side: Side) -> str:
    return f"{side.run_id} ({side.profile}, {side.mode}, {side.cases} cases, exit code {side.exit_code})"


def summary(difference: Difference) -> str:
    """One line."""
    counts = [f"{len(rows)} {heading}" for heading, rows in sections(difference)]
    return ("WORSE: " if difference.worse else "NOT WORSE: ") + (", ".join(counts) or "no difference")


def to_text(difference: Difference) -> str:
    """For a terminal."""
    lines = [f"before  {_side(difference.before)}", f"after   {_side(difference.after)}"]
    for heading, rows in sections(difference):
        lines += ["", heading]
        lines += [f"  {one_line(what)}" + (f"  {how}" if how else "") for what, how in rows]
    return "\n".join([*lines, "", summary(difference)])


def to_html(difference: Difference) -> str:
    """One file, no script, no network."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>kit diff</title><style>{_STYLE}</style><h1>{escape(summary(difference))}</h1>",
        f"<p>before: {escape(_side(difference.before))}<br>after: {escape(_side(difference.after))}</p>",
    ]
    for heading, rows in sections(difference):
        cells = "".join(f"<tr><td>{escape(one_line(what))}<td>{escape(how)}" for what, how in rows)
        parts.append(f"<h2>{heading} ({len(rows)})</h2><table>{cells}</table>")
    return "".join(parts) + "</html>\n"
