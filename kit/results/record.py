"""Whether a result is the one that its plan and events give."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Final

from kit.measurement import Record
from kit.results.model import CaseResult, RunResult
from kit.results.text import one_line

# What another version of kit may word in another way.
_WORDING: Final = frozenset({"reason"})
_TOLD_APART: Final = frozenset({"cases", "sessions", "problems", "warnings", "kit_version"})


def differences(told: RunResult, derived: RunResult, exact: bool) -> Iterator[str]:
    """In what `told` is not `derived`, one line each.

    Args:
        exact: compare the wording of reasons, problems and warnings too: it is this kit's own.
    """
    yield from _cases(told, derived, exact)
    yield from _fields(told, derived, _TOLD_APART, "the run")
    for session, expected in zip(told.sessions, derived.sessions, strict=False):
        yield from _fields(session, expected, frozenset() if exact else _WORDING, f"session {expected.id}")
    if len(told.sessions) != len(derived.sessions):
        yield f"result.json has {len(told.sessions)} sessions, the plan {len(derived.sessions)}"
    if exact and told.problems != derived.problems:
        yield "result.json does not tell the problems that follow from the events"
    if exact and told.warnings != derived.warnings:
        yield "result.json does not tell the warnings that follow from the events"
    if Counter(p.exit_code for p in told.problems) != Counter(p.exit_code for p in derived.problems):
        yield f"result.json tells {len(told.problems)} problems of the run, its events {len(derived.problems)}"


def _cases(told: RunResult, derived: RunResult, exact: bool) -> Iterator[str]:
    twice = [name for name, count in Counter(case.id for case in told.cases).items() if count > 1]
    known = {case.id: case for case in told.cases}
    expected = {case.id: case for case in derived.cases}
    if twice and len(told.cases) != len(derived.cases):
        yield f"case {twice[0]} is in result.json more than once"
    yield from (f"case {name} was planned, and is not in result.json" for name in expected if name not in known)
    yield from (f"case {name} is in result.json, and was not planned" for name in known if name not in expected)
    if known.keys() == expected.keys() and [c.id for c in told.cases] != [c.id for c in derived.cases]:
        yield "the cases of result.json are not in the order of the plan"
    for name in expected:
        if name in known:
            yield from _case(known[name], expected[name], exact)


def _case(told: CaseResult, derived: CaseResult, exact: bool) -> Iterator[str]:
    if told.status is not derived.status:
        yield f"case {told.id} is {told.status} in result.json; its events give {derived.status}"
    if told.measurements != derived.measurements:
        yield from _measurements(told, derived)
    rest = frozenset({"status", "measurements"}) | (frozenset() if exact else _WORDING)
    yield from _fields(told, derived, rest, f"case {told.id}")


def _measurements(told: CaseResult, derived: CaseResult) -> Iterator[str]:
    if len(told.measurements) != len(derived.measurements):
        counts = len(told.measurements), len(derived.measurements)
        yield f"case {told.id} has {counts[0]} measurements in result.json, {counts[1]} in its events"
    for ours, theirs in zip(told.measurements, derived.measurements, strict=False):
        yield from _fields(ours, theirs, frozenset(), f"case {told.id}, {theirs.name}")


def _fields(told: Record, derived: Record, apart: frozenset[str], what: str) -> Iterator[str]:
    """Fields that differ; compared as JSON, where NaN is NaN."""
    if told == derived:
        return
    ours, theirs = json.loads(told.model_dump_json()), json.loads(derived.model_dump_json())
    for key in theirs:
        if key not in apart and ours[key] != theirs[key]:
            found, expected = json.dumps(ours[key])[:60], json.dumps(theirs[key])[:60]
            yield one_line(f"{what}: {key} is {found} in result.json; its events give {expected}")
