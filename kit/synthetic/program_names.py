"""Names of the programs of an adapter's life (`kit.synthetic.adapter_programs`), for those that need no more."""

from typing import Final

WALK: Final = "walk"
ONE_SLOT: Final = "one-slot"
RELOAD: Final = "reload"
LAST_POSITIONS: Final = "last-positions"
REFUSED: Final = "refused-"
"""Begins the name of each program about an operation that must be refused."""
