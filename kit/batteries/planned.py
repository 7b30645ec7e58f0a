"""A case together with the session that answers it."""

from typing import NamedTuple

from kit.plan import Case, Session


class Planned(NamedTuple):
    """One promise of a battery."""

    session: Session
    case: Case
