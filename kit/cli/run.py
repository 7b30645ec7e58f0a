"""``kit run``: qualify this machine against a hardware profile."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kit.cli.progress import SafeConsole
    from kit.errors import ExitCode
    from kit.host.run import Prepared


def run(
    profile: Annotated[str, typer.Option(help="Hardware profile, by name or alias, in any case.")],
    runtime: Annotated[
        str,
        typer.Option(help="docker: in the profile's image. local: in this Python. auto: docker if an engine answers."),
    ] = "auto",
    mode: Annotated[
        str, typer.Option(help="ci honours waivers; qualify refuses skips, selections and unpinned images.")
    ] = "ci",
    output: Annotated[
        Path | None, typer.Option(help="Results folder, new or empty. Default: kit-results/PROFILE-TIME.")
    ] = None,
    battery: Annotated[list[str] | None, typer.Option(help="Only this battery; may be repeated.")] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only cases that match this glob; may be repeated.")] = None,
    inject: Annotated[
        list[str] | None,
        typer.Option(metavar="FAULT[=STRENGTH]", help="Inject a fault on purpose, to see it caught; may be repeated."),
    ] = None,
    rerun_failed: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|BUNDLE", help="Only what was not green there: a results folder or bundle of this profile."
        ),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="N,N", help="These GPUs, by number. Default: the first free ones that fit.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a value of the profile, which then has another name; may be repeated. Not in mode qualify.",
        ),
    ] = None,
    offline_checks: Annotated[
        bool,
        typer.Option(
            "--offline-checks",
            help="Only what needs none of the profile's hardware, in the CPU image or in this Python.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print image, container, sessions and cases; start nothing.")
    ] = False,
) -> None:
    """Run the conformance batteries of a profile and write JUnit XML with the evidence behind it."""
    from kit.cli.progress import SafeConsole
    from kit.host.devices import gpu_numbers
    from kit.host.run import Request, prepare

    prepared = prepare(
        Request(
            profile=profile,
            runtime=runtime,
            mode=mode,
            output=output,
            batteries=tuple(battery or ()),
            cases=tuple(case or ()),
            inject=tuple(inject or ()),
            rerun_failed=rerun_failed,
            gpus=gpu_numbers(gpus),
            changes=tuple(change or ()),
            offline=offline_checks,
        )
    )
    console = SafeConsole()
    if dry_run:
        from kit.cli.dry_run import print_plan

        print_plan(prepared, console)
        return
    raise typer.Exit(carry_out(prepared, console))


def carry_out(prepared: "Prepared", console: "SafeConsole") -> "ExitCode":
    """Run it, write the reports, and say how it went.

    Raises:
        KitError: the results folder cannot be had, or reports were lost.
    """
    from kit.cli.progress import Progress, unheard
    from kit.errors import KitError
    from kit.host.run import execute, write_reports
    from kit.host.supervisor import stop_signals
    from kit.results.console import print_result
    from kit.results.report.summary import append_summary

    with stop_signals() as stop:
        with Progress(prepared.plan, console) as progress:
            finished = execute(prepared, stop, progress)
        finished.reserve.free()
        try:
            files = write_reports(finished.result, finished.folder)
        except KitError as fault:
            with suppress(OSError):
                append_summary(finished.result, lost=str(fault))
            with unheard(console):
                print_result(finished.result, console, lost=str(fault), lost_code=fault.exit_code)
            raise
        with suppress(OSError):
            append_summary(finished.result)
        with unheard(console):
            print_result(finished.result, console, files)
        if finished.refused:
            with suppress(OSError, ValueError):
                print(f"kit: {finished.refused}", file=sys.stderr)
    return finished.result.exit_code
