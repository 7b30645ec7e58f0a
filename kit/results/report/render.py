"""From a result to the HTML file. All text is made printable and escaped; only this package's own markup is not."""

import base64
import hashlib
from functools import cache, partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from kit.faults.catalogue import FAULTS
from kit.measurement import Comparison
from kit.results.model import RunResult, Status
from kit.results.report import plots
from kit.results.report.sentence import RED, title_of, verdict_sentence
from kit.results.report.view import MarginRow, SessionView, View, duration, facts, instant, margin_text
from kit.results.text import amount, number, one_line, printable

_HERE = Path(__file__).parent
_SIGNS = {Comparison.AT_MOST: "≤", Comparison.AT_LEAST: "≥", Comparison.EQUAL: "="}


def to_html(result: RunResult, before: RunResult | None = None) -> bytes:
    """`result` as one HTML file in UTF-8 that loads nothing; with an earlier result `before`, it tells since when."""
    view = View(result, before)
    script = (_HERE / "report.js").read_text(encoding="utf-8")
    template = _environment().get_template("report.html.j2")
    text = template.render(
        view=view,
        result=result,
        title=title_of(result),
        sentence=verdict_sentence(result),
        counts=[(status.value, result.counts[status]) for status in Status if result.counts[status]],
        faults=FAULTS,
        axis=plots.margin_axis(view.scale),
        histogram=plots.margin_histogram(view.scale, view.margins),
        fact_groups=_fact_groups(result),
        css=Markup((_HERE / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return text.encode("utf-8", "backslashreplace")


@cache
def _environment() -> Environment:
    """With kit's filters; templates are compiled once in a process."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        trim_blocks=False,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "amount": lambda value, unit: amount(value, "1" if unit == "count" else unit),
        "clip": partial(one_line, longest=300),
        "commands": _commands,
        "duration": duration,
        "exact": repr,
        "facts": facts,
        "instant": instant,
        "margin_text": margin_text,
        "number": number,
        "sign": _SIGNS.__getitem__,
        "timing": _timing,
        "tone": _tone,
        "track": lambda row, scale: plots.margin_track(scale, row.margin, f"margin {row.label}", _tone(row)),
        "words": lambda name: name.replace("_", " "),
    }
    environment.globals["head_legend"] = plots.HEAD_LEGEND
    return environment


def _safe(value: object) -> object:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _commands(hint: str) -> Markup:
    """A hint, with the command at its end set as code."""
    text, mark, command = hint.partition(": kit run ")
    if not mark:
        return escape(printable(hint))
    return Markup("{}: <code>kit run {}</code>").format(printable(text), printable(command))


def _tone(row: MarginRow) -> str:
    status = Status(row.status)
    if status in RED or (row.margin is not None and row.margin < 1.0 and status is not Status.WAIVED):
        return "red"
    return "amber" if status in (Status.WAIVED, Status.UNEXPECTED_PASS) else "green"


def _timing(session: SessionView, longest: float) -> Markup:
    return plots.timing_bar(session.start, session.work, longest)


def _fact_groups(result: RunResult) -> list[tuple[str, dict[str, str]]]:
    groups = [("Image", result.image), ("Host", result.host), ("Worker", result.worker)]
    return groups + [(f"Session {session.id}", session.facts) for session in result.sessions]
