"""The one interface of every attention-kernel library under test."""

from dataclasses import dataclass
from typing import Final, Literal, Protocol

from kit.attention_spec import AttentionSpec
from kit.oracles.metrics import Values
from kit.synthetic.attention import AttentionInputs

Poison = Literal["nan", "huge"]
"""What fills outputs, workspaces, unused slots and padded rows: NaN, or 1e30 (the largest finite value where that overflows)."""


POISONS: Final[tuple[Poison, Poison]] = ("nan", "huge")


@dataclass(frozen=True)
class Answer:
    """What one call gave.

    Attributes:
        out: [new tokens, query_heads, value_dim].
        overwritten: values beyond the rows asked for that the call changed.
        launched: names of the kernels that were seen to run.
        foreign: those of them that are not this library's: a silent fallback.
        repeatable: the kernels that ran give the same bits for the same inputs. Those that add atomically do not.
    """

    out: Values
    overwritten: int
    launched: tuple[str, ...]
    foreign: tuple[str, ...]
    repeatable: bool = True


class AttentionLibrary(Protocol):
    """A library of attention kernels, open on its device.

    Attributes:
        facts: where the kernels come from, for the report.
    """

    @property
    def facts(self) -> dict[str, str]: ...

    def refuses(self, spec: AttentionSpec) -> str | None:
        """Why the installed library cannot be asked this; None if it can."""
        ...

    def attend(self, spec: AttentionSpec, inputs: AttentionInputs, poison: Poison) -> Answer:
        """One call, as an engine makes it, with everything that must not matter filled with `poison`."""
        ...
