"""Finding a thing by the name a person typed, and telling the near matches when there is none."""

import difflib
from collections.abc import Iterable

from kit.errors import UsageFault

_SHOWN = 30


def near_matches(wrong: str, known: Iterable[str]) -> str:
    """A clause that helps after a wrong name: the near matches, else the known names, of many the first ones."""
    names = sorted(set(known))
    by_fold = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(wrong.casefold(), by_fold, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(f"'{by_fold[fold]}'" for fold in close) + "?"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"known: {', '.join(names[:_SHOWN])}{more}" if names else "there is none"


def unknown(kind: str, wrong: str, known: Iterable[str]) -> UsageFault:
    """The fault for a name that is not known: ``unknown profile 'mi35x'; did you mean 'mi355x'?``"""
    return UsageFault(f"unknown {kind} '{wrong}'", near_matches(wrong, known))


def case_glob(glob: str) -> str:
    """A glob of case ids, as files name them.

    Raises:
        ValueError: it does not name its battery.
    """
    battery, slash, rest = glob.partition("/")
    if not slash or not rest or any(sign in battery for sign in "*?["):
        raise ValueError("expected a glob of case ids that names its battery, such as 'kernels/wave-prefill/*'")
    return glob
