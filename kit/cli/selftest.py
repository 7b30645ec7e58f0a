"""``kit selftest``: whether the batteries see faults that are injected on purpose, and nothing where there is none."""

from pathlib import Path
from typing import Annotated

import typer


def selftest(
    profile: Annotated[str, typer.Option(help="Hardware profile.")] = "cpu",
    runtime: Annotated[str, typer.Option(help="auto, docker or local.")] = "local",
    output: Annotated[Path | None, typer.Option(help="Folder for the results. Default: below kit-results/.")] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAULT[=STRENGTH]",
            help="Only this fault; may be repeated. 'all' means every fault as reported, which is the default; 'none' means none.",
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAULT",
            help="Find the smallest strength of this fault that is seen, per dtype; may be repeated, or 'all'. "
            "Without --fault nothing else is injected.",
        ),
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only cases that match this glob; may be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=0, help="Fault-free rounds, each over other seeds.")] = 1,
    listed: Annotated[bool, typer.Option("--list", help="Only list the faults and what would be asked.")] = False,
) -> None:
    """Inject every fault of the catalogue in turn and see which cases are red; then see that none is without a fault.

    Writes selftest.json and selftest.html beside the files of a run. Exit code 0: all caught, and no false alarm; 1: not so; 130: stopped.
    """
    from kit.cli.progress import Progress, SafeConsole, unheard
    from kit.errors import ExitCode
    from kit.host.run import Request, execute, prepare, write_reports
    from kit.host.supervisor import stop_signals
    from kit.results.sums import seal
    from kit.selftest.beside import beside_the_plan
    from kit.selftest.choice import Choice
    from kit.selftest.outcome import outcome_of
    from kit.selftest.prepare import selftest_of
    from kit.selftest.report import print_selftest, selftest_html

    choice = Choice(tuple(fault or ()), rounds, tuple(case or ()), tuple(sweep or ()))
    prepared = selftest_of(prepare(Request(profile=profile, runtime=runtime, output=output)), choice)
    beside = beside_the_plan(prepared, choice)
    console = SafeConsole()
    if listed:
        cases = (f"{case.session}  {case.id}" for case in prepared.plan.cases)
        for line in (*cases, *beside.told()):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    beside.refuse_what_cannot_be_asked()
    with stop_signals() as stop:
        with Progress(prepared.plan, console) as progress:
            finished = execute(prepared, stop, progress)
            finished.reserve.free()
            write_reports(finished.result, finished.folder)
            result = outcome_of(finished.result, beside.asked(prepared, finished, stop, progress))
        (finished.folder / "selftest.json").write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
        (finished.folder / "selftest.html").write_bytes(selftest_html(result))
        seal(finished.folder)
    with unheard(console):
        print_selftest(result, console)
        console.print(str(finished.folder / "selftest.html"), soft_wrap=True)
    raise typer.Exit(ExitCode.INTERRUPTED if result.stopped else 0 if result.good else 1)
