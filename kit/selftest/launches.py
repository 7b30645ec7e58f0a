"""The self-test's launches of containers: a run of the subject that computes nothing, and a fault of its container in mid-case.

A fault is caught where the run says exactly what happened: status of every case, exit code, reason, and nothing left of the container.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ByteSize

from kit.check_spec import NullCheck
from kit.events import AnyEvent, CaseStarted
from kit.faults.catalogue import MARK
from kit.faults.container_catalogue import FAULT_FREE, LAUNCHES, ContainerFault
from kit.faults.containers import PROVOKED
from kit.faults.kind import FaultKind
from kit.host.container import RUN_LABEL
from kit.host.planner import new_run_id
from kit.host.run import Display, Prepared, execute, with_inputs, write_reports
from kit.host.supervisor import StopRequest
from kit.plan import Case, InjectedFault, NullSession, Plan, Session
from kit.results.model import CaseResult, RunResult
from kit.selftest.outcome import Beside, Caught, FaultOutcome
from kit.waiver import Waivers

if TYPE_CHECKING:
    from docker import DockerClient

FOLDER = "launches"
_IN_FLIGHT = 1
_MEMORY = ByteSize(512 * 2**20)
_START_SECONDS = 60.0
_CASE_SECONDS = 100.0


@dataclass(frozen=True)
class Launcher:
    """Launches containers of a self-test's profile and image; each leaves its reports below `folder`.

    Attributes:
        stop: once it is made, the launch in flight ends without an answer, and no further one begins.
    """

    client: "DockerClient"
    prepared: Prepared
    folder: Path
    stop: StopRequest
    display: Display

    def launched(self, kinds: Sequence[FaultKind]) -> Beside:
        """Launch once without a fault, and once under each. Faults that were not reached have no outcome.

        Raises:
            KitError: a results folder cannot be had.
        """
        cases, different = self._launch("fault-free", FAULT_FREE, ())
        if self.stop.made:
            return Beside()
        alarms = tuple(f"launch without a fault: {line}" for line in different)
        outcomes = tuple(self._answered(kinds))
        return Beside(outcomes, quiet=0 if alarms else len(cases), alarms=alarms)

    def _answered(self, kinds: Sequence[FaultKind]) -> Iterator[FaultOutcome]:
        for kind in kinds:
            outcome = self._outcome(kind)
            if self.stop.made:
                return
            why = outcome.missing[0] if outcome.missing else f"caught by {outcome.caught[0].case}"
            self.display.line(f"{kind.name}: {why}")
            yield outcome

    def _outcome(self, kind: FaultKind) -> FaultOutcome:
        faults = (InjectedFault(name=kind.name, strength=1.0),)
        cases, different = self._launch(kind.name, LAUNCHES[kind.name], faults)
        hit = cases[_IN_FLIGHT]
        caught = Caught(case=_plain(hit), status=hit.status.value, seconds=hit.seconds)
        return FaultOutcome.of(
            kind,
            asked=tuple(map(_plain, cases)),
            missing=different,
            caught=() if different else (caught,),
            batteries={"container": not different},
        )

    def _launch(
        self, name: str, expected: ContainerFault, faults: tuple[InjectedFault, ...]
    ) -> tuple[tuple[CaseResult, ...], tuple[str, ...]]:
        """The cases of one launch, and what of it is not as expected, a line each."""
        plan = self._plan(name, expected, faults)
        act = PROVOKED.get(name)
        taken = self._another_named(plan.run_id) if name == "container-name-taken" else contextlib.nullcontext()
        with taken:
            result = self._run(name, plan, _Provoking(lambda: act(self._container(plan.run_id)) if act else None))
        left = self._containers(plan.run_id)
        for container in left:
            container.remove(force=True)
        names = tuple(f"the container {container.name} was left" for container in left)
        return result.cases, (*_differences(result, expected), *names)

    def _run(self, name: str, plan: Plan, display: Display) -> RunResult:
        profile = self.prepared.profile
        limits = profile.container.model_copy(update={"memory": _MEMORY})
        profile = profile.model_copy(update={"container": limits})
        prepared = replace(
            self.prepared,
            profile=profile,
            runtime="docker",
            waivers=Waivers(),
            output=self.folder / name,
            plan=with_inputs(plan, profile, Waivers(), self.prepared.mode),
        )
        finished = execute(prepared, self.stop, display)
        finished.reserve.free()
        write_reports(finished.result, finished.folder)
        return finished.result

    def _plan(self, name: str, expected: ContainerFault, faults: tuple[InjectedFault, ...]) -> Plan:
        profile = self.prepared.profile
        acts = {"one": ("pass", expected.act, "pass"), "two": ("pass",)}
        spec = NullSession(architecture=profile.architecture)
        return Plan(
            run_id=new_run_id(),
            profile=profile.name,
            architecture=profile.architecture,
            run_seconds=expected.run_seconds,
            sessions=tuple(
                Session(id=session, spec=spec, start_seconds=_START_SECONDS, case_seconds=_CASE_SECONDS)
                for session in acts
            ),
            cases=tuple(
                Case(
                    id=f"container/{session}/{number}-{act}{MARK}{name}",
                    session=session,
                    spec=NullCheck(act=act),
                    faults=faults,
                )
                for session, names in acts.items()
                for number, act in enumerate(names)
            ),
        )

    def _containers(self, run_id: str) -> list[Any]:
        return list(self.client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={run_id}"}))

    def _container(self, run_id: str) -> Any:
        (one,) = self._containers(run_id)
        return one

    @contextlib.contextmanager
    def _another_named(self, run_id: str) -> Iterator[None]:
        """Somebody else's container has the name that the run's would get; it must still be there afterwards."""
        from kit.host.image_store import check_image

        assert self.prepared.image is not None
        image = check_image(self.client, self.prepared.image).id
        other = self.client.containers.create(image, ["true"], name=f"kit-{run_id}", network_mode="none")
        try:
            yield
        finally:
            other.remove(force=True)


@dataclass(frozen=True)
class _Provoking:
    """Follows a launch, and acts when the case that is to be hit has begun. What goes wrong with that ends the run with a reason."""

    act: Callable[[], None]

    def line(self, text: str) -> None:
        """Nothing: of a launch one line is told, at its end."""

    def event(self, event: AnyEvent) -> None:
        """Act where it is time."""
        if isinstance(event, CaseStarted) and f"/{_IN_FLIGHT}-" in event.case:
            self.act()


def _differences(result: RunResult, expected: ContainerFault) -> Iterator[str]:
    for case, told in zip(result.cases, expected.told, strict=True):
        if case.status.value != told:
            yield f"{_plain(case)} is {case.status.value}, not {told}: {case.reason}"
    reason = result.cases[_IN_FLIGHT].reason
    if expected.words not in reason:
        yield f"the reason does not say '{expected.words}': {reason}"
    if result.exit_code != expected.code:
        yield f"the exit code is {result.exit_code:d}, not {expected.code:d}"


def _plain(case: CaseResult) -> str:
    return case.id.partition(MARK)[0]
