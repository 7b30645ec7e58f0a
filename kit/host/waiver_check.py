"""Looks after the waivers: which expired, which are about nothing that is planned, and which excuse too much."""

import re
from collections.abc import Collection, Iterator
from datetime import date, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from kit.host.planner import Selection, make_plan
from kit.profile import Profile
from kit.waiver import Waiver, Waivers

_SOON = timedelta(days=14)
_VERSION = re.compile(
    r"\b(?:ROCm|CUDA|PyTorch|torch|Triton|SGLang|Wave|HIP|driver)\s*v?\d+|\b\d+\.\d+\.\d+\b", re.IGNORECASE
)


class Concern(StrEnum):
    """What is wrong with a waiver. Only `EXPIRED` fails the check."""

    EXPIRED = "expired"
    EXPIRES_SOON = "expires soon"
    NOT_OPEN = "not open yet"
    UNMATCHED = "unmatched"
    UNNAMED = "unnamed"
    OVER_BROAD = "over-broad"


class Finding(NamedTuple):
    """One concern about one waiver, in one line."""

    waiver: str
    concern: Concern
    text: str


def check_waivers(waivers: Waivers, profiles: Collection[Profile], today: date) -> tuple[Finding, ...]:
    """All that is to be said about these waivers, held against the plans of these profiles."""
    cases = {
        profile.name: (profile.architecture, [case.id for case in make_plan(profile, Selection(), "check").cases])
        for profile in profiles
    }
    return tuple(
        Finding(waiver.id, concern, text)
        for waiver in waivers.waiver
        for concern, text in (
            *_dated(waiver, today),
            *_matched(waiver, cases),
            *_named(waiver, profiles),
            *_broad(waiver, cases),
        )
    )


def _dated(waiver: Waiver, today: date) -> Iterator[tuple[Concern, str]]:
    if waiver.opened > today:
        yield Concern.NOT_OPEN, f"it counts from {waiver.opened}; correct 'opened' unless that is meant"
    left = waiver.expires - today
    if left < timedelta(0):
        yield Concern.EXPIRED, f"on {waiver.expires}; mend the fault, or renew it with what is known now; {waiver.link}"
    elif left <= _SOON:
        yield Concern.EXPIRES_SOON, f"on {waiver.expires}, in {left.days} days; {waiver.link}"


def _matched(waiver: Waiver, cases: dict[str, tuple[str, list[str]]]) -> Iterator[tuple[Concern, str]]:
    fitting = {name: ids for name, (arch, ids) in cases.items() if fnmatchcase(arch, waiver.architecture)}
    if not fitting:
        yield Concern.UNMATCHED, f"no profile here is for {waiver.architecture}"
        return
    for glob in waiver.globs:
        if not any(fnmatchcase(case, glob) for ids in fitting.values() for case in ids):
            yield Concern.UNMATCHED, f"{', '.join(fitting)} plans no case '{glob}'"


def _named(waiver: Waiver, profiles: Collection[Profile]) -> Iterator[tuple[Concern, str]]:
    about = [profile for profile in profiles if fnmatchcase(profile.architecture, waiver.architecture)]
    if about and not any(profile.waivers is None or waiver.id in profile.waivers for profile in about):
        yield (
            Concern.UNNAMED,
            f"no profile for {waiver.architecture} has it in its key 'waivers', so it excuses nothing",
        )


def _broad(waiver: Waiver, cases: dict[str, tuple[str, list[str]]]) -> Iterator[tuple[Concern, str]]:
    for battery in dict.fromkeys(glob.partition("/")[0] for glob in waiver.globs):
        of_it = [glob for glob in waiver.globs if glob.partition("/")[0] == battery]
        whole = any(not glob.partition("/")[2].strip("*?/") for glob in of_it)
        for _, ids in cases.values():
            own = [case for case in ids if case.partition("/")[0] == battery]
            whole |= len(own) > 1 and all(waiver.about(case) for case in own)
        if whole:
            yield Concern.OVER_BROAD, f"'{', '.join(of_it)}' excuses the whole battery {battery}"
    if not waiver.architecture.strip("*?") and not (waiver.versions and waiver.expected):
        yield Concern.OVER_BROAD, "it excuses every architecture, and versions and expected range do not narrow it"
    if not waiver.versions and (match := _VERSION.search(waiver.reason)):
        yield Concern.OVER_BROAD, f"its reason is about {match[0]}, and it has no [waiver.versions]"
