"""The links between GPUs, which every answer of a model spread over several of them goes through. Asked first."""

from collections.abc import Iterator
from itertools import product
from typing import Final

from kit.batteries.planned import Planned
from kit.check_spec import AllReduce
from kit.plan import Case, CollectiveSession, Session
from kit.profile import Profile

MEBIBYTES: Final = (1, 16, 256)
DTYPES: Final = ("float32", "bfloat16")
SECONDS: Final = 60.0
"""Within which a sum must be there. 256 MiB take milliseconds on any link; a hang takes for ever."""


def cases(profile: Profile) -> Iterator[Planned]:
    """``kernels/all-reduce/<dtype>-<size>MiB`` over all GPUs of the profile; nothing where it has one."""
    if profile.gpus < 2:
        return
    session = Session(
        id="all-reduce",
        spec=CollectiveSession(
            ranks=profile.gpus,
            device=str(profile.engine.arguments["device"]),
            environment=profile.engine.environment,
        ),
        start_seconds=profile.time.session_start.total_seconds(),
        case_seconds=2 * SECONDS,
        gpus=profile.gpus,
        alone=True,
    )
    for dtype, size in product(DTYPES, MEBIBYTES):
        spec = AllReduce(dtype=dtype, mebibytes=size, seconds=SECONDS)
        yield Planned(session, Case(id=f"kernels/all-reduce/{dtype}-{size}MiB", session=session.id, spec=spec))
