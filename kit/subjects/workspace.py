"""What a session gives its subject besides the spec."""

from dataclasses import dataclass
from pathlib import Path

from kit.plan import InjectedFault


@dataclass(frozen=True)
class Workspace:
    """Folders and faults of one session.

    Attributes:
        assets: read-only folder with the synthetic models.
        scratch: writable folder of this session.
        faults: deliberate faults; empty except in a self-test.
        switched: the self-test changes the faults while an engine lives (`kit.faults.switch`), so it loads those of engines at once.
        pinned: read-only folder with the pinned assets; None where no session of the run needs one.
    """

    assets: Path
    scratch: Path
    faults: tuple[InjectedFault, ...] = ()
    pinned: Path | None = None
    switched: bool = False
