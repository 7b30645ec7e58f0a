"""A Markdown summary for CI, such as GitHub's job summary (the file that ``$GITHUB_STEP_SUMMARY`` names)."""

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

from kit.errors import ExitCode
from kit.results.model import RunResult, Status
from kit.results.report.hints import Hints
from kit.results.report.sentence import RED, gravity, in_full, telling, title_of, verdict_sentence
from kit.results.text import one_line

VARIABLE = "GITHUB_STEP_SUMMARY"
_MOST_CASES = 50
_MARKS = re.compile(r"([\\`*_{}\[\]()#+!|~@$:-])")


def append_summary(result: RunResult, lost: str | None = None) -> Path | None:
    """Append the summary where the CI system asks for one; gives the file, None where none is asked for.

    Args:
        lost: why reports could not be written; the run then does not end as its cases say.

    Raises:
        OSError: the file cannot be written.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    path = Path(name)
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(to_markdown(result, lost))
    return path


def to_markdown(result: RunResult, lost: str | None = None) -> str:
    """`result` in a page: verdict, counts, what did not pass and what to try, and what is not proven."""
    return "\n".join(_lines(result, lost)) + "\n"


def _lines(result: RunResult, lost: str | None) -> Iterator[str]:
    mark = "✅" if result.exit_code is ExitCode.CONFORMS and lost is None else "❌"
    yield f"## {mark} {_text(title_of(result) if lost is None else 'Reports lost')}: {_text(result.profile.name)}"
    yield ""
    if lost is not None:
        yield f"**{_text(lost)}**"
        yield ""
    for fault in result.faults:
        text = f"FAULT INJECTED ON PURPOSE: {_text(fault.name)} = {fault.strength:g}."
        yield f"> ⚠️ **{text}** This run says nothing about the hardware."
        yield ""
    yield _text(verdict_sentence(result))
    yield ""
    yield ", ".join(f"**{count:,}** {_text(s)}" for s in Status if (count := result.counts[s])) or "No case."
    code = "" if lost is not None else f"exit code {result.exit_code:d}, "
    facts = f"mode {result.mode}, {code}kit {_code(result.kit_version)}"
    yield f"Run {_code(result.run_id)}, {facts}."
    yield ""
    for problem in result.problems:
        yield f"- **problem** {_text(problem.text)}"
    for warning in result.warnings[:_MOST_CASES]:
        yield f"- **warning** {_text(warning)}"
    yield ""
    yield from _cases(result)
    if result.does_not_prove:
        yield "<details><summary>What this profile does not prove</summary>"
        yield ""
        yield from (f"- {_text(text)}" for text in result.does_not_prove)
        yield ""
        yield "</details>"
        yield ""


def _cases(result: RunResult) -> Iterator[str]:
    told = [case for case in result.cases if case.status in (*RED, Status.UNEXPECTED_PASS, Status.WAIVED)]
    told.sort(key=gravity)
    if not told:
        return
    hints = Hints(result)
    yield "| case | status | what | try |"
    yield "|---|---|---|---|"
    for case in told[:_MOST_CASES]:
        worst = telling(case)
        what = _text(in_full(case, worst) if worst is not None and not worst.within else case.reason)
        first = " ".join(hints.of(case)[: 2 if result.faults else 1])
        yield f"| {_code(case.id)} | {_text(case.status)} | {what} | {_text(first)} |"
    yield ""
    if len(told) > _MOST_CASES:
        yield f"and {len(told) - _MOST_CASES:,} more; the report has all."
        yield ""


def _text(text: str) -> str:
    """`text` on one line, with nothing in it that Markdown or HTML would take for its own."""
    return html.escape(_MARKS.sub(r"\\\1", one_line(text, 500)), quote=False)


def _code(text: str) -> str:
    return f"<code>{html.escape(one_line(text)).replace('|', '&#124;').replace('@', '&#64;')}</code>"
