"""What the worker hands to the processes of one session on their command line."""

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SessionArguments:
    """Which session of which plan, and where its files lie.

    Attributes:
        folder: the results folder, with plan.json. session: id of the session.
        assets: read-only files. scratch: a folder of the run, for what the session writes.
        pinned: read-only folder of the pinned assets; None where no session needs one.
    """

    folder: Path
    session: str
    assets: Path
    scratch: Path
    pinned: Path | None = None

    def command(self, module: str, events: int) -> list[str]:
        """Runs `module` as a child of this process; it writes events to the file descriptor `events`."""
        return [
            sys.executable, "-m", module, str(self.folder), self.session, "--assets", str(self.assets),
            *(() if self.pinned is None else ("--pinned", str(self.pinned))),
            "--scratch", str(self.scratch), "--events", str(events), "--parent", str(os.getpid()),
        ]  # fmt: skip


def parse_session_arguments(program: str) -> tuple[SessionArguments, int, int]:
    """The arguments of this process, the file descriptor of its events, and the pid of its parent."""
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("folder", type=Path)
    parser.add_argument("session")
    parser.add_argument("--assets", type=Path, required=True)
    parser.add_argument("--pinned", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    told = parser.parse_args()
    arguments = SessionArguments(told.folder, told.session, told.assets, told.scratch, told.pinned)
    return arguments, told.events, told.parent
