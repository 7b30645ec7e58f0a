"""Whether a bundle may be believed: offline, from its own files and the profile that this kit has under the same name.

Checksums catch an accident. Against a hand that also rewrites the checksums, every verdict is derived again from plan,
events and waivers, and the plan is made again from the profile. Whoever changes all of these files consistently is
caught by a signature only.
"""

import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kit.check_spec import OF_ASSETS
from kit.errors import EnvironmentFault, ExitCode, ReportFault, UsageFault
from kit.host.planner import Selection, further_cases, make_plan
from kit.image import source_digest
from kit.measurement import LimitSource, Measurement
from kit.plan import OF_PINNED, Case, Plan, SGLangSession
from kit.profile import Profile, find_profile
from kit.results.bundle import read_run
from kit.results.environment import environment_of
from kit.results.files import JUNIT_FILE, write_all
from kit.results.junit_read import read_junit
from kit.results.model import Mode, RunResult
from kit.results.record import differences
from kit.results.signature import is_whole, made_by_some_key, signer_of
from kit.results.stored import (
    ENVIRONMENT_FILE,
    PLAN_FILE,
    PROFILE_FILE,
    WAIVERS_FILE,
    DamagedRun,
    NoRun,
    StoredRun,
    as_json,
    parse_run,
)
from kit.results.sums import SIGNATURE_FILE, SUMS_FILE, faults_in_sums

_PEER_NOTE = re.compile(r"(?P<factor>[\d.]+) × peer (?P<peer>[\d.e+-]+) \+ floor (?P<floor>[\d.e+-]+)")
_ROUNDED = 0.01  # notes give three digits


@dataclass(frozen=True)
class Verification:
    """What came of it.

    Attributes:
        refusals: why it is not to be believed, one line each; empty if it is.
        notes: what a reader must know all the same.
        result: the result, where it could be read.
    """

    refusals: tuple[str, ...]
    notes: tuple[str, ...] = ()
    result: RunResult | None = None

    @property
    def exit_code(self) -> ExitCode:
        """0 verified, 1 refused."""
        return ExitCode.NOT_CONFORMING if self.refusals else ExitCode.CONFORMS


def verify(path: Path, profile: str | None = None, allowed_signers: Path | None = None) -> Verification:
    """Check a results folder or a bundle.

    Args:
        profile: the name that it must be of, or an alias; by default the one that it names itself.
        allowed_signers: accept only what one of these signed.

    Raises:
        UsageFault: it is no results folder or bundle, or there is no such profile. EnvironmentFault: ssh-keygen is needed and missing.
    """
    named = find_profile(profile) if profile is not None else None
    try:
        files = read_run(path)
    except NoRun:
        raise
    except UsageFault as fault:
        return Verification((str(fault),))
    return verify_files(files, named, allowed_signers)


def verify_files(
    files: Mapping[str, bytes], named: Profile | None = None, allowed_signers: Path | None = None
) -> Verification:
    """Check the files of a run; `named` is this kit's profile that they must be of."""
    refusals = list(faults_in_sums(files))
    notes: list[str] = []
    refusals += _signature(files, allowed_signers, notes)
    try:
        run = parse_run(files)
    except DamagedRun as damage:
        return Verification((*refusals, *damage.faults), tuple(notes))
    refusals += own_record(run, files, notes)
    refusals += _mode_rules(run)
    try:
        refusals += _of_profile(run, named or find_profile(run.profile.name), notes)
    except UsageFault as fault:
        refusals.append(f"this kit cannot tell what profile {run.profile.name} demands: {fault.problem}")
    refusals += [f"limit of {text}" for text in _limits(run)]
    if run.plan.injected:
        notes.append("faults were injected on purpose; this run says nothing about the hardware")
    return Verification(tuple(dict.fromkeys(refusals)), tuple(notes), run.result)


def _signature(files: Mapping[str, bytes], allowed: Path | None, notes: list[str]) -> Iterator[str]:
    signature, sums = files.get(SIGNATURE_FILE), files.get(SUMS_FILE, b"")
    if signature is None:
        if allowed is not None:
            yield "it is not signed"
        else:
            notes.append("not signed: whoever changed all of its files consistently would not be seen")
        return
    if not is_whole(signature):
        yield f"{SIGNATURE_FILE} is not as ssh-keygen writes it"
    elif allowed is not None:
        signer = signer_of(sums, signature, allowed)
        if signer is None:
            yield f"none of the signers in {allowed} signed these checksums"
        else:
            notes.append(f"signed by {signer}")
    else:
        try:
            if not made_by_some_key(sums, signature):
                yield "the signature is not one of these checksums"
            notes.append("signed, by whom was not checked: give --allowed-signers")
        except EnvironmentFault as fault:
            notes.append(f"the signature was not checked: {fault.problem}")


def own_record(run: StoredRun, files: Mapping[str, bytes], notes: list[str]) -> Iterator[str]:
    """Whether the files of a run agree: result, reports and environment follow from plan, events and waivers."""
    derived = run.rejudged()
    exact = run.environment.kit.sources == source_digest()
    yield from differences(run.result, derived, exact)
    if exact:
        yield from _reports(derived, files)
        told = {PLAN_FILE: run.plan, PROFILE_FILE: run.profile, WAIVERS_FILE: run.waivers}
        told |= {ENVIRONMENT_FILE: run.environment}
        yield from (
            f"{name} is not as kit writes it" for name, record in told.items() if files[name] != as_json(record)
        )
    else:
        notes.append("another version of kit made this: its wording and its HTML report were checked by checksum only")
        if JUNIT_FILE not in files:
            yield f"{JUNIT_FILE} is missing"
        else:
            yield from read_junit(files[JUNIT_FILE]).differences(derived)
    if environment_of(run.result, run.environment.host_packages) != run.environment:
        yield "environment.json does not follow from result.json"
    for name in (PROFILE_FILE, WAIVERS_FILE):
        if run.plan.inputs.get(name) != hashlib.sha256(files[name]).hexdigest():
            yield f"{name} is not the one that the run was planned with"
    if run.plan.mode != run.result.mode:
        yield f"the run was planned in mode {run.plan.mode}, result.json says {run.result.mode}"


def _reports(derived: RunResult, files: Mapping[str, bytes]) -> Iterator[str]:
    """Every report, made again with this same kit, must be the same to the byte."""
    with tempfile.TemporaryDirectory(prefix="kit-verify-") as place:
        try:
            expected = write_all(derived, Path(place))
        except ReportFault as fault:
            yield str(fault)
            return
        for path in expected:
            if path.name not in files:
                yield f"{path.name} is missing"
            elif files[path.name] != path.read_bytes():
                yield f"{path.name} does not follow from the events"


def _mode_rules(run: StoredRun) -> Iterator[str]:
    """What a qualification needs beyond what its verdicts already refuse."""
    if run.result.mode is not Mode.QUALIFY:
        return
    if run.result.runtime != "docker" or not run.result.image.get("id"):
        yield "qualify: the run was not in the pinned image"
    if run.result.image.get("kit.base-pinned") != "yes":
        yield "qualify: the base of the image was not pinned by digest"
    pinned = {file.path.split("/", 1)[0] for file in run.plan.assets}
    for session in run.plan.sessions:
        if isinstance(session.spec, SGLangSession) and session.spec.model not in pinned:
            yield f"qualify: the asset {session.spec.model} was not pinned by SHA-256"
        if isinstance(session.spec, OF_PINNED):
            unlocked = [asset.name for asset in session.spec.assets if not asset.files]
            yield from (f"qualify: the asset {name} was not pinned by SHA-256" for name in unlocked)
    if run.environment.kit.clean is False:
        yield "qualify: the sources of kit were not as committed"


def _of_profile(run: StoredRun, profile: Profile, notes: list[str]) -> Iterator[str]:
    """Whether this is a whole run of `profile`, as this kit has it."""
    if run.profile.name != profile.name or run.result.profile.name != profile.name:
        told = run.result.profile.name
        yield f"it is a run of profile {told} ({PROFILE_FILE}: {run.profile.name}), not of {profile.name}"
        return
    ours, theirs = profile.model_dump(mode="json"), run.profile.model_dump(mode="json")
    changed = [key for key in ours if ours[key] != theirs[key]]
    if changed:
        keys = ", ".join(changed)
        yield f"its profile {profile.name} is not this kit's: {keys} differ; verify with the kit that made it"
    yield from _planned(run.plan, profile, notes)
    for session in run.result.sessions:
        seen = session.facts.get("architecture", profile.architecture)
        if seen != profile.architecture:
            yield f"session {session.id} ran on {seen}, the profile is for {profile.architecture}"


def _planned(told: Plan, profile: Profile, notes: list[str]) -> Iterator[str]:
    expected = make_plan(profile, Selection(), told.run_id)
    further = list(further_cases(profile))
    cases = {case.id: case for case in told.cases}
    for case in expected.cases:
        if case.id not in cases:
            if case.battery in profile.mandatory:
                yield f"the mandatory case {case.id} was not planned"
            else:
                notes.append(f"the optional case {case.id} was not planned")
    known = {case.id: case for case in (*expected.cases, *(case for _, case in further))}
    for name, case in cases.items():
        if name not in known:
            yield f"case {name} is not of profile {profile.name}"
        elif case != known[name]:
            if not _for_want_of_assets(case, known[name], told):
                yield f"case {name} is not the one that the profile demands"
            else:
                notes.append(f"case {name} was skipped: {case.skip}")
    sessions = {session.id: session for session in (*expected.sessions, *(session for session, _ in further))}
    for session in told.sessions:
        if sessions.get(session.id, session) != session:
            yield f"session {session.id} had other settings than the profile demands"
    if (told.architecture, told.run_seconds) != (expected.architecture, expected.run_seconds):
        yield "architecture or time limit of the plan are not the profile's"


def _for_want_of_assets(told: Case, known: Case, plan: Plan) -> bool:
    """Whether a case differs from the profile's only in that mode `ci` skipped it, as it does where a pinned asset is not there."""
    needs_assets = isinstance(known.spec, OF_ASSETS) and plan.mode == "ci"
    return needs_assets and told.model_copy(update={"skip": known.skip}) == known


def _limits(run: StoredRun) -> Iterator[str]:
    """Limits that do not follow from what is told beside them: exact ones, those that the peer's error gives, those of the profile."""
    planned = {case.id: {other.measurement: other.limit for other in case.limits} for case in run.plan.cases}
    for case in run.result.cases:
        other = planned.get(case.id, {})
        for measurement in case.measurements:
            own = measurement.limit if measurement.source is LimitSource.PROFILE else None
            if own != other.get(measurement.name):
                told = other.get(measurement.name, "none")
                yield f"{case.id}, {measurement.name}: the limit of the profile is {told}, not {own}"
            if why := _wrong_limit(measurement):
                yield f"{case.id}, {measurement.name}: {why}"


def _wrong_limit(measurement: Measurement) -> str | None:
    limit = measurement.limit
    if limit is None:
        return None
    if measurement.source is LimitSource.EXACT and measurement.comparison != "==":
        return f"an exact limit is compared with {measurement.comparison}"
    match = _PEER_NOTE.fullmatch(measurement.note)
    if measurement.source is LimitSource.PEER and match:
        expected = float(match["factor"]) * float(match["peer"]) + float(match["floor"])
        if abs(limit - expected) > _ROUNDED * expected:
            return f"it is {limit:.3g}, but {measurement.note} gives {expected:.3g}"
    return None
