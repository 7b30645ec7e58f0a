"""What a look at the machine before a run found: one line each, with what to do."""

from enum import StrEnum

from kit.measurement import Record


class Severity(StrEnum):
    """What a finding means for a run: nothing, something to know, or that it must not start."""

    OK = "ok"
    WARN = "warn"
    REFUSE = "refuse"


class Finding(Record):
    """One thing that was looked at.

    Attributes:
        check: what was looked at, such as ``architecture``; the same name on every machine.
        what: what was found, one clause.
        why: why that matters to a run, one clause; empty where all is well.
        remedy: what to do, one clause; empty where all is well.
    """

    check: str
    severity: Severity
    what: str
    why: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, (f"{self.check}: {self.what}", self.why, self.remedy)))
