"""``kit doctor``: what of this machine would spoil a run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kit.finding import Finding


def doctor(
    profile: Annotated[str, typer.Option(help="Hardware profile, by name or alias, in any case.")],
    runtime: Annotated[str, typer.Option(help="As for 'kit run': docker, local, or auto.")] = "auto",
    output: Annotated[Path, typer.Option(help="Where results would lie.")] = Path("kit-results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at this machine as 'kit run' does before it starts anything, and more closely. Changes nothing.

    Exit code 0: a run can start; 3: the machine refuses it; 4: only the image or an asset is missing.
    """
    from kit.host.doctor.look import Question, everything, exit_code_of
    from kit.host.run import RUNTIMES, engine_for, one_of
    from kit.image import find_image
    from kit.profile import find_profile

    chosen = find_profile(profile)
    name = one_of("runtime", runtime, RUNTIMES)
    client, why = engine_for("auto" if name == "docker" else name)
    question = Question(chosen, None if chosen.missing else find_image(chosen.image), output, client)
    findings = tuple(everything(question, why, asked_for_engine=name == "docker"))
    if as_json:
        print(json.dumps([finding.model_dump(mode="json") for finding in findings], indent=1))
    else:
        _print(findings)
    raise typer.Exit(exit_code_of(findings))


def _print(findings: "tuple[Finding, ...]") -> None:
    from rich.table import Table

    from kit.cli.progress import SafeConsole, unheard
    from kit.finding import Severity
    from kit.results.text import one_line

    styles = {Severity.OK: "green", Severity.WARN: "yellow", Severity.REFUSE: "bold red"}
    console = SafeConsole()
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("check", ""):
        table.add_column(column, no_wrap=True)
    table.add_column("what, why it matters, what to do", overflow="fold", ratio=1)
    from rich.text import Text

    for finding in findings:
        text = "; ".join(filter(None, (finding.what, finding.why, finding.remedy)))
        severity = Text(finding.severity.value, style=styles[finding.severity])
        table.add_row(Text(finding.check), severity, Text(one_line(text, 500)))
    with unheard(console):
        console.print(table)
