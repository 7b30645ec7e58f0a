"""``--rerun-failed``: what was not green in an earlier run, as a selection of cases."""

from dataclasses import replace
from glob import escape
from pathlib import Path

from kit.errors import UsageFault
from kit.host.planner import Selection
from kit.profile import Profile
from kit.results.bundle import read_run
from kit.results.model import Status
from kit.results.stored import read_result

_RED = (Status.FAILED, Status.CRASHED, Status.TIMEOUT, Status.MISSING, Status.ENVIRONMENT)


def selection_of_red(run: Path, profile: Profile, selection: Selection) -> Selection:
    """The cases of a results folder or bundle that neither passed nor were skipped or waived.

    Raises:
        UsageFault: another profile's run, nothing red in it, or a selection beside it.
    """
    if selection.partial:
        raise UsageFault("--rerun-failed chooses the cases itself", "drop --battery and --case, or --rerun-failed")
    result = read_result(read_run(run), str(run))
    if result.profile.name != profile.name:
        raise UsageFault(
            f"{run} is a run of profile {result.profile.name}, not of {profile.name}",
            f"use --profile {result.profile.name}, or name another run",
        )
    red = tuple(escape(case.id) for case in result.cases if case.status in _RED)
    if not red:
        raise UsageFault(f"no case of {run} was red", "run without --rerun-failed")
    return replace(selection, cases=red, rerun_of=result.run_id)
