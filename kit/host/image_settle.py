"""Runs inside an image while it is built: takes out what no run needs, and checks that what is expected is there.

Only the standard library, and no import of kit: the image does not have it yet.
"""

import fnmatch
import importlib.metadata
import sys
from collections.abc import Iterable
from pathlib import Path

PREFIX = Path("/opt/kit")


def differences(expected: list[str]) -> list[str]:
    """What differs, a clause each. `expected` holds ``name==version``; ``*`` and ``?`` match as in file names."""
    found: list[str] = []
    for item in expected:
        name, _, wanted = item.partition("==")
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} {wanted} is expected and not there")
            continue
        if not fnmatch.fnmatchcase(version, wanted):
            found.append(f"{name} {wanted} is expected, {version} is there")
    return found


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether an installed file, named as in RECORD, is one that an image leaves out."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def leave_out(patterns: list[str], prefix: Path = PREFIX) -> None:
    """Remove the installed files that match, below `prefix` only: a base keeps all of its own."""
    for distribution in importlib.metadata.distributions():
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if matches(str(file), patterns) and prefix in path.parents:
                path.unlink(missing_ok=True)


if __name__ == "__main__":
    if found := differences(sys.argv[1].split()):
        sys.exit("; ".join(found))
    leave_out(sys.argv[2].split())
