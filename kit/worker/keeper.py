"""``python -m kit.worker.keeper``: keeps one session, so that several can run at once and each is ended with all its processes.

The worker starts one keeper for each session. Orphans of a session become children of its keeper, never of the worker, so
ending one session's processes cannot touch another's.
"""

import os

from kit.events import EventWriter
from kit.plan import Plan
from kit.process import adopt_orphans, die_with_parent
from kit.worker.arguments import parse_session_arguments
from kit.worker.session_process import SessionProcess


def main() -> None:
    """Run the session to its end; its events go to the worker."""
    arguments, events, parent = parse_session_arguments("kit.worker.keeper")
    os.set_inheritable(events, False)
    die_with_parent(parent)
    adopt_orphans()
    plan = Plan.model_validate_json((arguments.folder / "plan.json").read_bytes())
    SessionProcess(plan, arguments, EventWriter(events)).run()


if __name__ == "__main__":
    main()
