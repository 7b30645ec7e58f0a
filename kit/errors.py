"""Every way in which kit ends early: one class per kind, with its exit code and what to do next.

A `KitError` is shown as one line, never as a traceback. A bug in kit itself is anything else.
"""

import errno
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of ``kit run`` (docs/architecture.md, "Verdicts")."""

    CONFORMS = 0
    NOT_CONFORMING = 1
    USAGE = 2
    ENVIRONMENT = 3
    IMAGE = 4
    INCOMPLETE = 5
    INTERRUPTED = 130


class KitError(Exception):
    """A fatal condition that the user can act on.

    Args:
        problem: what is wrong, one clause, without a full stop.
        remedy: what to do about it, one clause.
    """

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return " ".join(f"{self.problem}; {self.remedy}".split())


class UsageFault(KitError):
    """A wrong name, option, file or folder given by the user."""

    exit_code = ExitCode.USAGE


class EnvironmentFault(KitError):
    """The machine cannot run this: no engine, no device, no memory, no disk."""

    exit_code = ExitCode.ENVIRONMENT


class ReportFault(KitError):
    """A report could not be made, by a fault in kit itself; what the run found is in the others."""

    exit_code = ExitCode.INCOMPLETE


class ImageFault(KitError):
    """An image or asset is missing, or is not the one that the definition names."""

    exit_code = ExitCode.IMAGE


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed for want of space or quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
