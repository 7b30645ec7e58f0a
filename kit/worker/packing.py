"""How well sessions fill the devices of a plan: their schedule with given times, and the time that no schedule can beat."""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from kit.events import AnyEvent, SessionEnded, SessionStarted
from kit.plan import Plan
from kit.worker.scheduler import Shares, shares_of, start_order


@dataclass(frozen=True)
class Packing:
    """A schedule of a plan.

    Attributes:
        makespan: from the first start to the last end, s. bound: no schedule of sessions that take so long is shorter, s.
        starts: when each session starts, s.
    """

    makespan: float
    bound: float
    starts: Mapping[str, float]


def lower_bound(plan: Plan, seconds: Mapping[str, float]) -> float:
    """The longest session, or all shares of devices that are used, times how long, over the shares that there are, s."""
    devices = plan.devices
    sessions = [session for session in plan.sessions if session.id in seconds]
    area = sum(session.gpus * shares_of(session, devices) * seconds[session.id] for session in sessions)
    longest = max((seconds[session.id] for session in sessions), default=0.0)
    return max(longest, area / (devices.count * devices.sessions_at_once))


def simulated(plan: Plan, seconds: Mapping[str, float]) -> Packing:
    """What the scheduler does with sessions that take so long, each the same beside others as alone.

    Raises:
        KeyError: a session that would run has no time.
    """
    shares, waiting, starts = Shares(plan.devices), start_order(plan), {}
    running: list[tuple[float, str, tuple[int, ...], int]] = []
    now = 0.0
    while waiting or running:
        still = []
        for session in waiting:
            each = shares_of(session, plan.devices)
            devices = shares.take(session.gpus, each)
            if devices is None:
                still.append(session)
                continue
            starts[session.id] = now
            heapq.heappush(running, (now + seconds[session.id], session.id, devices, each))
        waiting = still
        if not running:
            break  # what waits needs more devices than there are
        now, _, devices, each = heapq.heappop(running)
        shares.give_back(devices, each)
    return Packing(now, lower_bound(plan, seconds), starts)


def measured(plan: Plan, events: list[AnyEvent]) -> Packing | None:
    """The schedule of a run whose sessions all ended; None where one did not, or none began."""
    starts = {event.session: event.at for event in events if isinstance(event, SessionStarted)}
    ends = {event.session: event.at for event in events if isinstance(event, SessionEnded)}
    if not starts or starts.keys() - ends.keys():
        return None
    first = min(starts.values())
    seconds = {name: ends[name] - begin for name, begin in starts.items()}
    begun = {name: begin - first for name, begin in starts.items()}
    return Packing(max(ends[name] for name in starts) - first, lower_bound(plan, seconds), begun)
