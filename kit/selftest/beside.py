"""What a self-test asks beside the plan of its run: launches of containers, and the record of that run."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.errors import EnvironmentFault, ImageFault
from kit.faults.catalogue import FAULTS, parse_fault
from kit.faults.kind import ActsOn, FaultKind
from kit.host.run import Display, Finished, Prepared
from kit.host.supervisor import StopRequest
from kit.plan import Plan
from kit.results.sums import read_folder
from kit.selftest.choice import Choice
from kit.selftest.outcome import Beside

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
    """

    launches: tuple[FaultKind, ...]
    records: tuple[FaultKind, ...]
    engine: "DockerClient | None"
    no_engine: str
    plan_lacks: dict[str, str]

    def asked(self, prepared: Prepared, finished: Finished, stop: StopRequest, display: Display) -> Beside:
        """Ask: first what was written, then the launches, which leave more files in the folder.

        Raises:
            KitError: the folder cannot be read or written.
        """
        from kit.selftest.launches import FOLDER, Launcher
        from kit.selftest.reports import report_outcomes

        begin = time.monotonic()
        altered = tuple(report_outcomes(read_folder(finished.folder), self.records)) if self.records else ()
        launched = Beside()
        if self.engine is not None and self.launches and not stop.made:
            launcher = Launcher(self.engine, prepared, finished.folder / FOLDER, stop, display)
            launched = launcher.launched(self.launches)
        outcomes = (*launched.outcomes, *altered)
        left_out = self.plan_lacks | dict(self._left_out({outcome.name for outcome in outcomes}))
        return Beside(outcomes, launched.quiet, launched.alarms, left_out, time.monotonic() - begin)

    def told(self) -> Iterator[str]:
        """What is asked, a line each, and what is not."""
        for kind in self.launches:
            yield f"not asked: {kind.name} ({self.no_engine})" if self.engine is None else f"launch  {kind.name}"
        yield from (f"kit verify  {kind.name}" for kind in self.records)
        yield from (f"not asked: {name} ({why})" for name, why in self.plan_lacks.items())

    def _left_out(self, answered: set[str]) -> Iterator[tuple[str, str]]:
        yield from ((kind.name, self.no_engine or _STOPPED) for kind in self.launches if kind.name not in answered)
        yield from ((kind.name, _NOTHING_TO_ALTER) for kind in self.records if kind.name not in answered)


def beside_the_plan(prepared: Prepared, choice: Choice) -> BesideThePlan:
    """What else a self-test asks, once its plan is made. An engine is looked for where a fault of containers is asked about.

    Raises:
        KitError: a fault of containers was named, and no engine answers or the profile's image is not built.
    """
    asked = tuple(dict.fromkeys(FAULTS[parse_fault(text).name] for text in choice.asked))
    launches = _of(asked, "containers")
    engine, why = None, ""
    if launches:
        try:
            engine = _engine(prepared)
        except (EnvironmentFault, ImageFault) as fault:
            if not choice.of_all:
                raise
            why = fault.problem
    return BesideThePlan(launches, _of(asked, "reports"), engine, why, dict(_lacking(prepared.plan, asked)))


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
