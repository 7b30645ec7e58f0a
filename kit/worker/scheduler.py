"""Runs the sessions of a plan, as many at once as the devices allow."""

import os
import selectors
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kit.events import EventWriter, SessionEnded, Trouble, parse_event
from kit.plan import Devices, Plan, Session
from kit.process import exit_reason
from kit.worker.arguments import SessionArguments

_CHUNK = 65_536
_THREADS = "OMP_NUM_THREADS"
_MOST_THREADS = 4
"""Tiny models gain nothing from more threads, and lose much on large hosts."""


class Shares:
    """Who uses which device. A session takes a share of as many devices as it needs, the least used ones first."""

    def __init__(self, devices: Devices) -> None:
        self._free = [devices.sessions_at_once] * devices.count

    def take(self, count: int, shares: int = 1) -> tuple[int, ...] | None:
        """Indices of `count` devices that have so many shares left; None where there are not enough."""
        ranked = sorted(range(len(self._free)), key=lambda device: (-self._free[device], device))
        chosen = tuple(sorted(device for device in ranked[:count] if self._free[device] >= shares))
        if len(chosen) < count:
            return None
        for device in chosen:
            self._free[device] -= shares
        return chosen

    def give_back(self, chosen: tuple[int, ...], shares: int = 1) -> None:
        """The opposite of `take`."""
        for device in chosen:
            self._free[device] += shares


def start_order(plan: Plan) -> list[Session]:
    """The sessions that have a case to answer, in the order in which they ask for their devices."""
    wanted = [session for session in plan.sessions if plan.cases_of(session.id)]
    return sorted(wanted, key=lambda session: (-session.gpus, not session.alone))


def shares_of(session: Session, devices: Devices) -> int:
    """Its shares of each of its devices: all where it must be alone there."""
    return devices.sessions_at_once if session.alone else 1


def visible_devices(devices: Devices, chosen: tuple[int, ...], environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that shows a session only its own devices; where this process sees a subset, indices count in it."""
    if devices.visible is None:
        return {}
    seen = environment.get(devices.visible, "")
    names = seen.split(",") if seen else [str(index) for index in range(devices.count)]
    return {devices.visible: ",".join(names[index] for index in chosen)}


def processor_threads(devices: Devices, processors: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that gives each session its part of the processors; empty where the environment has it.

    Threads of OpenMP wait for each other by spinning: two sessions that each take all of two processors need ten times as long.
    """
    if _THREADS in environment:
        return {}
    share = processors // (devices.count * devices.sessions_at_once)
    return {_THREADS: str(max(1, min(share, _MOST_THREADS)))}


@dataclass
class _Kept:
    """A session that runs: its keeper, the unfinished last line of its events, its devices and its shares of each."""

    session: str
    keeper: "subprocess.Popen[bytes]"
    devices: tuple[int, ...]
    shares: int
    rest: bytes = b""
    ended: bool = field(default=False)


class Scheduler:
    """Starts a keeper for every session and forwards its events.

    Sessions that need many devices, or devices alone, start first, else in the order of the plan: such a one would otherwise
    wait for all at once. A session that needs more devices than there are is reported and not run; one without a case to
    answer is not started.
    """

    def __init__(
        self, plan: Plan, folder: Path, assets: Path, scratch: Path, log: EventWriter, pinned: Path | None = None
    ) -> None:
        self._plan = plan
        self._folder, self._assets, self._scratch, self._pinned = folder, assets, scratch, pinned
        self._log = log
        self._shares = Shares(plan.devices)
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Run every session to its end.

        Raises:
            OSError: the event log cannot be written.
        """
        waiting = start_order(self._plan)
        while waiting or self._selector.get_map():
            waiting = [session for session in waiting if not self._started(session)]
            for key, _ in self._selector.select():
                self._forward(key.fd, key.data)

    def _started(self, session: Session) -> bool:
        """Whether the session no longer waits."""
        if session.gpus > self._plan.devices.count:
            reason = f"it needs {session.gpus} GPUs, and the profile has {self._plan.devices.count}"
            self._log.append(SessionEnded(session=session.id, trouble=Trouble.ENVIRONMENT, reason=reason))
            return True
        shares = shares_of(session, self._plan.devices)
        devices = self._shares.take(session.gpus, shares)
        if devices is None:
            return False
        arguments = SessionArguments(self._folder, session.id, self._assets, self._scratch, self._pinned)
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        try:
            keeper = subprocess.Popen(
                arguments.command("kit.worker.keeper", write_fd),
                stdin=subprocess.DEVNULL,
                pass_fds=(write_fd,),
                env=os.environ | self._own(devices),
            )
        finally:
            os.close(write_fd)
        self._selector.register(read_fd, selectors.EVENT_READ, _Kept(session.id, keeper, devices, shares))
        return True

    def _own(self, devices: tuple[int, ...]) -> dict[str, str]:
        """The part of a session's environment that says what it may use."""
        shared = self._plan.devices
        threads = processor_threads(shared, len(os.sched_getaffinity(0)), os.environ)
        return threads | visible_devices(shared, devices, os.environ)

    def _forward(self, fd: int, kept: _Kept) -> None:
        chunk = os.read(fd, _CHUNK)
        *lines, kept.rest = (kept.rest + chunk).split(b"\n")
        for line in lines:
            if event := parse_event(line):
                kept.ended = kept.ended or isinstance(event, SessionEnded)
                self._log.append(event)
        if chunk == b"":
            self._selector.unregister(fd)
            os.close(fd)
            self._conclude(kept)

    def _conclude(self, kept: _Kept) -> None:
        code = kept.keeper.wait()
        self._shares.give_back(kept.devices, kept.shares)
        if not kept.ended:
            reason = f"{exit_reason(code)} of the process that kept it"
            self._log.append(SessionEnded(session=kept.session, trouble=Trouble.CRASHED, reason=reason))
