"""A run as its results folder tells it, read back; and its result derived again from plan, events and waivers."""

import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from kit.errors import UsageFault
from kit.events import AnyEvent, parse_lines
from kit.measurement import Record
from kit.plan import Plan
from kit.profile import Profile, without_retired_keys
from kit.results.environment import Environment
from kit.results.files import RESULT_FILE
from kit.results.model import LAST_INSTANT, Mode, RunResult
from kit.results.sums import SUMS_FILE
from kit.results.verdict import judge
from kit.waiver import Waivers

PLAN_FILE: Final = "plan.json"
PROFILE_FILE: Final = "profile.json"
WAIVERS_FILE: Final = "waivers.json"
ENVIRONMENT_FILE: Final = "environment.json"
EVENTS_FILE: Final = "events.jsonl"
HOST_FILE: Final = "host.jsonl"
SUFFIX: Final = ".tar.zst"
MAGIC: Final = b"\x28\xb5\x2f\xfd"
_MARKS: Final = (PLAN_FILE, RESULT_FILE, SUMS_FILE)
_OF_EARLIER_KITS: Final = {PROFILE_FILE: without_retired_keys}
Model = TypeVar("Model", bound=Record)


class NoRun(UsageFault):
    """What was named is no results folder and no bundle, so there is nothing to believe or to refuse."""


class DamagedRun(UsageFault):
    """The files of a run are not what kit writes; `faults` has one line for each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults), "use the results folder or bundle of a finished run")
        self.faults = faults


@dataclass(frozen=True)
class StoredRun:
    """All that a run left, parsed. `damaged` counts lines of ``events.jsonl`` that are no event."""

    plan: Plan
    profile: Profile
    waivers: Waivers
    environment: Environment
    result: RunResult
    worker: tuple[AnyEvent, ...]
    host: tuple[AnyEvent, ...]
    damaged: int

    def rejudged(self) -> RunResult:
        """The result that follows from plan, profile, waivers and events.

        Mode, times and the facts of image and host are taken over from the stored one.
        """
        told = self.result
        derived = judge(
            self.plan,
            self.profile,
            mode=told.mode,
            worker_events=self.worker,
            host_events=self.host,
            waivers=self.waivers,
            today=day_of(told.finished),
            started=told.started,
            finished=told.finished,
            damaged=self.damaged,
            image=told.image,
            host=told.host,
        )
        return derived.model_copy(update={"kit_version": told.kit_version})


def day_of(seconds: float) -> datetime.date:
    """The day (UTC) on which the waivers of a run must be valid: that of its end."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date()


def as_json(record: Record) -> bytes:
    """A record as kit writes it into a results folder."""
    return record.model_dump_json(indent=1).encode() + b"\n"


def parse_run(files: Mapping[str, bytes]) -> StoredRun:
    """Read the files of a run.

    Raises:
        DamagedRun: files are missing or do not fit their schema.
    """
    faults: list[str] = []
    plan = _parsed(files, PLAN_FILE, Plan, faults)
    profile = _parsed(files, PROFILE_FILE, Profile, faults)
    waivers = _parsed(files, WAIVERS_FILE, Waivers, faults)
    environment = _parsed(files, ENVIRONMENT_FILE, Environment, faults)
    result = _parsed(files, RESULT_FILE, RunResult, faults)
    worker, damaged = parse_lines(files.get(EVENTS_FILE, b"").split(b"\n"))
    host, damaged_host = parse_lines(files.get(HOST_FILE, b"").split(b"\n"))
    if damaged_host:
        faults.append(f"{HOST_FILE}: {damaged_host} lines are no event of kit")
    faults += _of_another_profile(plan, profile)
    if faults or not (plan and profile and waivers and environment and result):
        raise DamagedRun(faults)
    return StoredRun(plan, profile, waivers, environment, result, tuple(worker), tuple(host), damaged)


def read_result(files: Mapping[str, bytes], name: str) -> RunResult:
    """Only the result among the files of a run; also of a run that an older kit left without its other files.

    Raises:
        DamagedRun: it is missing or does not fit its schema.
    """
    faults: list[str] = []
    result = _parsed(files, RESULT_FILE, RunResult, faults)
    if result is None:
        raise DamagedRun([f"{name}: {fault}" for fault in faults])
    return result


def derive_result(files: Mapping[str, bytes]) -> RunResult:
    """The result of a run that left none, since kit was killed or the disk was full: from its plan and its events.

    What only ``result.json`` told, facts of image and host, is left out; begin and end are those of the events.

    Raises:
        DamagedRun: plan, profile or waivers are missing, damaged, or not of one run.
    """
    faults: list[str] = []
    plan = _parsed(files, PLAN_FILE, Plan, faults)
    profile = _parsed(files, PROFILE_FILE, Profile, faults)
    waivers = _parsed(files, WAIVERS_FILE, Waivers, faults)
    faults += _of_another_profile(plan, profile)
    if faults or not (plan and profile and waivers):
        raise DamagedRun(faults)
    for name, digest in plan.inputs.items():
        if hashlib.sha256(files.get(name, b"")).hexdigest() != digest:
            raise DamagedRun([f"{name} is not the one that the run was planned with"])
    worker, damaged = parse_lines(files.get(EVENTS_FILE, b"").split(b"\n"))
    host, damaged_host = parse_lines(files.get(HOST_FILE, b"").split(b"\n"))
    times = [event.at for event in (*worker, *host) if 0 <= event.at <= LAST_INSTANT]
    finished = max(times, default=0.0)
    return judge(
        plan,
        profile,
        mode=Mode(plan.mode),
        worker_events=worker,
        host_events=host,
        waivers=waivers,
        today=day_of(finished),
        started=min(times, default=0.0),
        finished=finished,
        damaged=damaged + damaged_host,
    )


def _of_another_profile(plan: Plan | None, profile: Profile | None) -> list[str]:
    if plan and profile and plan.profile != profile.name:
        return [f"{PLAN_FILE} is for profile {plan.profile}, {PROFILE_FILE} is {profile.name}"]
    return []


def _parsed(files: Mapping[str, bytes], name: str, model: type[Model], faults: list[str]) -> Model | None:
    if name not in files:
        faults.append(f"{name} is missing")
        return None
    try:
        return model.model_validate_json(_OF_EARLIER_KITS.get(name, bytes)(files[name]))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        faults.append(f"{name} does not fit its schema: {key}: {first['msg']}")
        return None


def existing(path: Path) -> Path:
    """`path`, if it is a results folder, be it damaged, or a file that may be a bundle. Looks at names only.

    Raises:
        NoRun: it is not.
    """
    if not path.exists():
        raise NoRun(f"{path} does not exist", "name a results folder or a bundle (.tar.zst)")
    known = any((path / name).exists() for name in _MARKS) if path.is_dir() else path.name.endswith(SUFFIX)
    if not known and not (path.is_file() and _starts_as_bundle(path)):
        raise NoRun(f"{path} is no results folder or bundle of kit", "name what 'kit run' or 'kit bundle' wrote")
    return path


def _starts_as_bundle(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise NoRun(f"{path}: cannot be read: {error.strerror}", "check the path and its permissions") from None
