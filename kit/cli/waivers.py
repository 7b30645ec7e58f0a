"""``kit waivers``: look after the waivers."""

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _waivers() -> None:
    """Look after the waivers."""


@app.command("check")
def check(
    profile: Annotated[
        list[str] | None, typer.Option(help="Hold them against this profile's cases; may be repeated. Default: all.")
    ] = None,
) -> None:
    """Report expired, unmatched and over-broad waivers; an expired one is exit code 1."""
    import datetime

    from kit.errors import ExitCode
    from kit.host.waiver_check import Concern, check_waivers
    from kit.offline_profile import offline_profiles
    from kit.profile import find_profile, load_profiles
    from kit.waiver import load_waivers

    everything = list(load_profiles().values())
    profiles = [find_profile(name) for name in profile] if profile else everything + offline_profiles(everything)
    waivers = load_waivers()
    findings = check_waivers(waivers, profiles, datetime.datetime.now(datetime.UTC).date())
    for finding in findings:
        print(f"{finding.waiver}: {finding.concern}: {finding.text}")
    expired = sum(finding.concern is Concern.EXPIRED for finding in findings)
    print(f"{len(waivers.waiver)} waivers, {expired} expired, {len(findings) - expired} other remarks")
    raise typer.Exit(ExitCode.NOT_CONFORMING if expired else ExitCode.CONFORMS)
