"""Whole results folders as ``kit run`` leaves them, with events that nobody had to measure: quick to make, true to the last byte."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kit.events import (
    AnyEvent,
    CaseFinished,
    CaseStarted,
    EventLog,
    RuntimeEnded,
    RuntimeStarted,
    SessionEnded,
    SessionReady,
    SessionStarted,
    WorkerFinished,
    WorkerStarted,
)
from kit.host.facts import host_facts
from kit.host.planner import Selection, make_plan
from kit.host.run import write_reports
from kit.measurement import Comparison, LimitSource, Measurement
from kit.plan import Case, Plan
from kit.profile import Profile, find_profile
from kit.results.model import Mode, RunResult
from kit.results.stored import as_json, day_of
from kit.results.sums import sums_of
from kit.results.verdict import judge
from kit.waiver import Waiver, Waivers

STARTED = 1_796_000_000.0
HOME = "/home/annabel"
PINNED = {"id": "sha256:" + "1" * 64, "tag": "kit-cpu:1", "kit.base-pinned": "yes"}


def measured(case: Case, scale: float = 1.0) -> tuple[Measurement, ...]:
    """What a correct stack would measure; `scale` multiplies the error."""
    noise = random.Random(case.id).uniform(0.8, 1.2)
    peer, floor = 2.5e-3, 1.0e-3
    return (
        Measurement(
            name="non_finite", value=0, unit="count", comparison=Comparison.EQUAL, limit=0, source=LimitSource.EXACT
        ),
        Measurement(
            name="max_abs_error",
            value=1.9e-3 * noise * scale,
            unit="nat",
            comparison=Comparison.AT_MOST,
            limit=2 * peer + floor,
            source=LimitSource.PEER,
            note=f"2 × peer {peer:.2e} + floor {floor:.2e}",
        ),
        Measurement(
            name="effect",
            value=0.8 * noise,
            unit="nat²",
            comparison=Comparison.AT_LEAST,
            limit=0.3,
            source=LimitSource.EFFECT,
        ),
    )


Measure = Callable[[Case], Sequence[Measurement]]


@dataclass(frozen=True)
class Staged:
    """A run to be written: what is planned, and what each case measures."""

    profile: Profile = field(default_factory=lambda: find_profile("cpu"))
    selection: Selection = field(default_factory=Selection)
    measure: Measure = measured
    waivers: tuple[Waiver, ...] = ()
    mode: Mode = Mode.CI
    runtime: str = "local"
    image: dict[str, str] = field(default_factory=dict)
    run_id: str = "20261201-120000-abcdef"
    log: str = f"loaded {HOME}/models/tiny by annabel\nHF_TOKEN=hf_{'a1B2' * 9}\n"

    def plan(self) -> Plan:
        planned = make_plan(self.profile, self.selection, self.run_id)
        files = {"profile.json": as_json(self.profile), "waivers.json": as_json(Waivers(waiver=self.waivers))}
        sums = dict(line.split("  ")[::-1] for line in sums_of(files).decode().splitlines())
        return planned.model_copy(update={"inputs": sums, "mode": self.mode.value})

    def events(self, plan: Plan) -> list[AnyEvent]:
        events: list[AnyEvent] = [
            WorkerStarted(at=STARTED, run_id=plan.run_id, pid=7, facts={"torch": "2.13.0", "python": "3.11.7"})
        ]
        for session in plan.sessions:
            facts = {"device": "AMD EPYC", "architecture": plan.architecture, "model": f"{HOME}/models/tiny"}
            events.append(SessionStarted(at=STARTED, session=session.id, pid=8))
            events.append(SessionReady(at=STARTED, session=session.id, seconds=2.5, facts=facts))
            for case in plan.cases_of(session.id):
                events.append(CaseStarted(at=STARTED, session=session.id, case=case.id))
                events.append(
                    CaseFinished(
                        at=STARTED,
                        session=session.id,
                        case=case.id,
                        seconds=0.25,
                        measurements=tuple(self.measure(case)),
                        evidence={"worst": {"row": 1, "served": -1.25}, "errors": [1e-3, "NaN", 2.5e-4]},
                    )
                )
            events.append(SessionEnded(at=STARTED, session=session.id, trouble=None, reason="exit code 0"))
        return [*events, WorkerFinished(at=STARTED)]

    def write(self, folder: Path) -> RunResult:
        """Write it as `kit.host.run` does."""
        plan = self.plan()
        (folder / "logs").mkdir(parents=True)
        waivers = Waivers(waiver=self.waivers)
        (folder / "profile.json").write_bytes(as_json(self.profile))
        (folder / "waivers.json").write_bytes(as_json(waivers))
        (folder / "plan.json").write_bytes(as_json(plan))
        for session in plan.sessions:
            (folder / "logs" / f"{session.id}.log").write_text(self.log)
        worker = self.events(plan)
        facts = {"python": f"{HOME}/venv/bin/python", "pid": "6"}
        host: list[AnyEvent] = [
            RuntimeStarted.model_validate({"at": STARTED, "runtime": self.runtime, "facts": facts}),
            RuntimeEnded(at=STARTED, trouble=None, reason="worker: exit code 0"),
        ]
        for name, events in (("events.jsonl", worker), ("host.jsonl", host)):
            log = EventLog(folder / name)
            for event in events:
                log.append(event)
            log.close()
        result = judge(
            plan,
            self.profile,
            mode=self.mode,
            worker_events=worker,
            host_events=host,
            waivers=waivers,
            today=day_of(STARTED + 60),
            started=STARTED,
            finished=STARTED + 60,
            image=self.image,
            host=host_facts() | {"hostname": "lab-7", "revision": "0123456789abcdef"},
        )
        write_reports(result, folder)
        return result


def reseal(folder: Path) -> None:
    """What someone does who changes files and covers it up."""
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / "SHA256SUMS").write_bytes(sums_of(files))
