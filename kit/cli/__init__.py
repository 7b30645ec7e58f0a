"""The ``kit`` command: one thin file per verb. Errors are shown here, each as one line."""

import contextlib
import os
import sys
from typing import NoReturn

import typer

from kit.cli import (
    assets,
    bundle,
    diff,
    doctor,
    images,
    profiles,
    report,
    run,
    schema,
    selftest,
    triage,
    verify,
    waivers,
)
from kit.errors import ExitCode, KitError, is_disk_full

app = typer.Typer(
    name="kit",
    help="Qualifies AI accelerators for LLM serving with LoRA.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing rich's Markdown would double the start of every command
)
app.command("run")(run.run)
app.command("doctor")(doctor.doctor)
app.command("report")(report.report)
app.command("selftest")(selftest.selftest)
app.command("bundle")(bundle.bundle)
app.command("verify")(verify.verify)
app.command("diff")(diff.diff)
app.command("triage")(triage.triage)
app.command("schema")(schema.schema)
app.add_typer(profiles.app, name="profiles", help="List and show hardware profiles.")
app.add_typer(waivers.app, name="waivers", help="Check the waivers.")
app.add_typer(assets.app, name="assets", help="List, lock, fetch and verify the pinned models and reference data.")
app.add_typer(images.app, name="images", help="List, lock and build the pinned images.")


def main() -> NoReturn:
    """Entry point of the ``kit`` script."""
    try:
        app()
    except KitError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        if not is_disk_full(error):
            raise
        _fail(f"the disk is full ({error.filename or 'while writing'}); free some space", ExitCode.ENVIRONMENT)
    finally:
        _drop_unheard_output()
    sys.exit(ExitCode.CONFORMS)


def _drop_unheard_output() -> None:
    """Where the reader of standard output is gone, the interpreter's last flush would change the exit code: let it go nowhere."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fail(text: str, code: ExitCode) -> NoReturn:
    with contextlib.suppress(OSError, ValueError):
        print(f"kit: {text}", file=sys.stderr)
    sys.exit(code)
