"""What a red row of a mixed batch carries instead of its own values: another identity's, another row's, or its own with a fault."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from kit.checks.rows import Judged, Row
from kit.oracles import metrics
from kit.oracles.hypotheses import CLEARLY_BETTER, FEWEST_VALUES, Answered, Tried, explain
from kit.oracles.layers import NO_ADAPTER, Adapter
from kit.oracles.metrics import Values
from kit.oracles.reference import LogprobOracle

_EXPLAINED = 3
"""Rows that fit no other row or identity and get the longer list of `kit.oracles.hypotheses`, which takes seconds each."""

_ROWS_NAMED = 4

ROWS_TOLD = 24
"""Red rows that are looked into."""


def told_of(oracle: LogprobOracle, judged: Judged, red: Sequence[Row]) -> tuple[str, list[str]]:
    """One sentence for the case, and one for each of the first red rows. These values are no verdict, so they are computed once."""
    told, unexplained = [], 0
    for row in red[:ROWS_TOLD]:
        best = _best(oracle, judged, row)
        if best is None and unexplained < _EXPLAINED:
            unexplained += 1
            told.append(_of_its_own(oracle, judged, row))
        else:
            told.append(best or "not looked into")
    (common, count), *others = Counter(told).most_common(2)
    rest = f"; of others: {others[0][0]}" if others else ""
    return f"{len(red)} of {len(judged.rows)} rows are red; of {count} of them: {common}{rest}.", told


def _best(oracle: LogprobOracle, judged: Judged, row: Row) -> str | None:
    """The identity or the row whose values the row carries; None where none fits clearly better than its own.

    A few values fit by chance, so of a short row they must fit down to rounding.
    """
    finite = np.isfinite(row.served)
    if not finite.any():
        return "no value is finite"
    tried = [*_identities(oracle, judged, row), *_left_over(oracle, row), *_rows(judged, row)]
    best = min(tried, key=lambda fault: fault.residual, default=None)
    own, values = metrics.mean_half_square(row.served[finite], row.oracle[finite]), int(np.count_nonzero(finite))
    if best is None or not best.residual * CLEARLY_BETTER <= own:
        return None
    if values >= FEWEST_VALUES:
        return best.fault
    permitted = judged.half_square(row).limit or 0.0
    return f"{best.fault}, by {values} values" if best.residual <= permitted else None


def _identities(oracle: LogprobOracle, judged: Judged, row: Row) -> Iterator[Tried]:
    """The row's own text under every other identity, and who had that identity."""
    for name in (None, *oracle.adapters):
        if name != row.identity:
            adapter = NO_ADAPTER if name is None else oracle.adapters[name]
            who = f"it carries the values of {name or 'the base model'}{_who(judged, row, name)}"
            yield Tried(who, _residual(row.served, oracle.supposing(adapter, row.text)))


def _left_over(oracle: LogprobOracle, row: Row) -> Iterator[Tried]:
    """The row's own adapter, with what others have on modules that it leaves alone: weights that stayed in its slot.

    A slot has the rank and the scaling of the adapter that it holds now.
    """
    own: Adapter = NO_ADAPTER if row.identity is None else oracle.adapters[row.identity]
    for name, other in oracle.adapters.items():
        more = {module: low for module, low in other.items() if module not in own}
        if own and more:
            slot = next(iter(own.values()))
            rank = len(slot.a)
            left = {m: replace(low, a=low.a[:rank], b=low.b[:, :rank], scaling=slot.scaling) for m, low in more.items()}
            parts = ", ".join(sorted({module.rpartition(".")[2] for module in more}))
            fault = f"it carries its own adapter and what {name} has on {parts}"
            yield Tried(fault, _residual(row.served, oracle.supposing({**left, **own}, row.text)))


def _who(judged: Judged, row: Row, identity: str | None) -> str:
    """Which rows of the batch have this identity, and whether the same row of the batch before had it."""
    told = []
    rows = [str(r.row) for r in judged.rows if r.batch == row.batch and r.identity == identity]
    if rows:
        more = f" and {len(rows) - _ROWS_NAMED} more" if rows[_ROWS_NAMED:] else ""
        told.append(f"identity of row {', '.join(rows[:_ROWS_NAMED])}{more} of its batch")
    if any((r.batch, r.row, r.identity) == (row.batch - 1, row.row, identity) for r in judged.rows):
        told.append("identity of this row in the batch before")
    return f" ({'; '.join(told)})" if told else ""


def _rows(judged: Judged, row: Row) -> Iterator[Tried]:
    """The values of other rows of the batch, as far as both go."""
    for other in judged.rows:
        both = min(len(other.oracle), len(row.served))
        if other.batch == row.batch and other.row != row.row and both * 2 >= max(2, len(row.served)):
            yield Tried(
                f"it carries the values of row {other.row}, another text",
                _residual(row.served[:both], other.oracle[:both]),
            )


def _residual(served: Values, supposed: Values) -> float:
    finite = np.isfinite(served)
    return metrics.mean_half_square(served[finite], supposed[finite]) if finite.any() else float("inf")


def _of_its_own(oracle: LogprobOracle, judged: Judged, row: Row) -> str:
    permitted = judged.half_square(row).limit or 0.0
    found = explain(oracle, Answered(row.identity, [row.text], [1], row.served, permitted))
    return found.sentence.rstrip(".") if found else "too little to tell"
