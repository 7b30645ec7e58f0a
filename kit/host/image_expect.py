"""Runs inside an image while it is built: are the distributions there that the definition expects?

Only the standard library, and no import of kit: the image does not have it yet.
"""

import fnmatch
import importlib.metadata
import sys


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


if __name__ == "__main__":
    sys.exit("; ".join(differences(" ".join(sys.argv[1:]).split())) or 0)
