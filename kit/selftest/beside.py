"""What a self-test asks beside the plan of its run: launches of containers, and the record of that run."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.errors import EnvironmentFault, ImageFault, KitError
from kit.faults.catalogue import FAULTS, parse_fault
from kit.faults.kind import ActsOn, FaultKind
from kit.host.run import Display, Finished, Prepared
from kit.host.supervisor import StopRequest
from kit.plan import Plan
from kit.results.sums import read_folder
from kit.selftest.choice import Choice
from kit.selftest.outcome import Beside, FaultOutcome

if TYPE_CHECKING:
    from docker import DockerClient

_STOPPED = "the self-test was stopped before"
_NOTHING_TO_ALTER = "the record of this run has nothing that it would alter"


@dataclass(frozen=True)
class BesideThePlan:
    """The faults that no case of a plan is about.

    Attributes:
        launches, records: faults of containers, and of the record. engine: for the launches; None where `no_engine` says why.
        plan_lacks: by fault that a plan could ask about and this one does not, the reason.
        named: the faults were named one by one, so all of them must be asked.
    """

    launches: tuple[FaultKind, ...]
    records: tuple[FaultKind, ...]
    engine: "DockerClient | None"
    no_engine: KitError | None
    plan_lacks: dict[str, str]
    named: bool

    def refuse_what_cannot_be_asked(self) -> None:
        """Before anything is started.

        Raises:
            KitError: a fault of containers was named, and no engine answers or the profile's image is not built.
        """
        if self.named and self.no_engine is not None:
            raise self.no_engine

    def asked(self, prepared: Prepared, finished: Finished, stop: StopRequest, display: Display) -> Beside:
        """Ask: first what was written, then the launches, which leave more files in the folder.

        A fault that was named, or that a signal cut off, and so has no answer, is an outcome without one.

        Raises:
            KitError: the folder cannot be read or written.
        """
        from kit.selftest.launches import FOLDER, Launcher
        from kit.selftest.reports import report_outcomes

        begin = time.monotonic()
        altered = tuple(report_outcomes(read_folder(finished.folder), self.records)) if self.records else ()
        launched = Beside()
        if self.engine is not None and not stop.made:
            launcher = Launcher(self.engine, prepared, finished.folder / FOLDER, stop, display)
            launched = launcher.launched(self.launches)
        answered = {outcome.name: outcome for outcome in (*launched.outcomes, *altered)}
        outcomes, left_out = [], dict(self.plan_lacks)
        for kind in (*self.launches, *self.records):
            if kind.name in answered:
                outcomes.append(answered[kind.name])
            elif self.named or stop.made:
                outcomes.append(FaultOutcome.of(kind, missing=(self._why_not(kind, stop),)))
            else:
                left_out[kind.name] = self._why_not(kind, stop)
        seconds = time.monotonic() - begin
        return Beside(tuple(outcomes), launched.quiet, launched.alarms, left_out, seconds, stop.made)

    def told(self) -> Iterator[str]:
        """What is asked, a line each, and what is not."""
        for kind in self.launches:
            why = self.no_engine.problem if self.no_engine else ""
            yield f"not asked: {kind.name} ({why})" if why else f"launch  {kind.name}"
        yield from (f"kit verify  {kind.name}" for kind in self.records)
        yield from (f"not asked: {name} ({why})" for name, why in self.plan_lacks.items())

    def _why_not(self, kind: FaultKind, stop: StopRequest) -> str:
        if kind in self.records:
            return _NOTHING_TO_ALTER
        return _STOPPED if stop.made or self.no_engine is None else self.no_engine.problem


def beside_the_plan(prepared: Prepared, choice: Choice) -> BesideThePlan:
    """What else a self-test asks, once its plan is made. An engine is looked for where a fault of containers is asked about."""
    asked = tuple(dict.fromkeys(FAULTS[parse_fault(text).name] for text in choice.asked))
    launches = _of(asked, "containers")
    engine, no_engine = None, None
    if launches:
        try:
            engine = _engine(prepared)
        except (EnvironmentFault, ImageFault) as fault:
            no_engine = fault
    lacks = dict(_lacking(prepared.plan, asked))
    return BesideThePlan(launches, _of(asked, "reports"), engine, no_engine, lacks, not choice.of_all)


def _of(kinds: tuple[FaultKind, ...], acts_on: ActsOn) -> tuple[FaultKind, ...]:
    return tuple(kind for kind in kinds if kind.acts_on == acts_on)


def _engine(prepared: Prepared) -> "DockerClient":
    from kit.host.docker_runtime import connect
    from kit.host.image_store import check_image

    client = connect()
    if prepared.image is None:
        raise ImageFault(f"profile {prepared.profile.name} has no image", "choose another profile")
    check_image(client, prepared.image)
    return client


def _lacking(plan: Plan, asked: tuple[FaultKind, ...]) -> Iterator[tuple[str, str]]:
    """Faults that have no case in the plan, and are not asked about beside it."""
    planned = {fault.name for fault in plan.injected}
    for kind in asked:
        if kind.acts_on == "ranks":
            yield kind.name, "ranks keep their fault while they live: 'kit run --inject' on a profile of several GPUs"
        elif kind.acts_on not in ("containers", "reports") and kind.name not in planned:
            yield kind.name, f"no case of profile {plan.profile} is about it"
