"""Which positions a kernel counted, told by one-hot values and equal scores."""

from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from kit.measurement import Measurement
from kit.oracles import limits
from kit.oracles.metrics import Values
from kit.synthetic.attention import Mask

_MOST_NAMED = 8


@dataclass(frozen=True)
class Revealed:
    """Places (row, head, position) that were counted and must not be, or the other way round."""

    included: tuple[tuple[int, int, int], ...]
    excluded: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, served: Values, oracle: Values, positions: tuple[int, ...]) -> "Revealed":
        """From [rows, heads, entries]; the weight of ``positions[i]`` stands in entry i.

        All seen positions of a row weigh the same, so half the smallest weight that the oracle gives in a row divides.
        """
        weights, true = served[..., : len(positions)], oracle[..., : len(positions)]
        seen = true > 0.0
        half = 0.5 * np.min(np.where(seen, true, np.inf), axis=-1, keepdims=True)
        counted = weights > half

        def places(wrong: Mask) -> tuple[tuple[int, int, int], ...]:
            return tuple((int(r), int(h), positions[int(i)]) for r, h, i in np.argwhere(wrong))

        return cls(places(counted & ~seen), places(~counted & seen))

    def measurements(self) -> list[Measurement]:
        """Counts that must be 0."""
        return [
            limits.exactly_none("wrongly_included", len(self.included), "positions that must not be seen, and were"),
            limits.exactly_none("wrongly_excluded", len(self.excluded), "positions that must be seen, and were not"),
        ]

    def evidence(self) -> dict[str, JsonValue]:
        """The first places, and how many positions, rows and heads they spread over."""
        told: dict[str, JsonValue] = {}
        for name, places in (("wrongly_included", self.included), ("wrongly_excluded", self.excluded)):
            if places:
                first: list[JsonValue] = [
                    {"row": row, "head": head, "position": position} for row, head, position in places[:_MOST_NAMED]
                ]
                positions: list[JsonValue] = list(sorted({place[2] for place in places})[:_MOST_NAMED])
                told[name] = {"first": first, "positions": positions}
        return told
