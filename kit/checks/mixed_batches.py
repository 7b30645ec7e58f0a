"""Batches of several identities: every row is right, and what it is alone. Batch invariance, measured on the first row."""

from collections.abc import Sequence

import numpy as np
from pydantic import JsonValue

from kit.check_spec import BatchInvariance, MixedBatch, MixedBatches
from kit.checks.carried import told_of
from kit.checks.outcome import CheckResult, shown
from kit.checks.rows import Judged, Row, beside, beside_prompt, beside_same_request, in_batches
from kit.evidence import ErrorByPosition, largest_of_each, window_for
from kit.measurement import Measurement
from kit.oracles import limits, metrics
from kit.subjects.sglang_engine import SGLangSubject

_PLACES_TOLD = 8


def check(spec: MixedBatches, subject: SGLangSubject) -> CheckResult:
    """All batches are sent before any row is asked alone, so that each batch follows the one before it."""
    ask_alone = beside_prompt if spec.alone == "as-prompt" else beside_same_request
    rows = ask_alone(subject, in_batches(subject, spec.batches, spec.seed))
    judged = Judged(rows, subject.session.dtype)
    return CheckResult(tuple(judged.measurements()), _evidence(subject, spec.batches, judged, spec.slots))


def check_invariance(spec: BatchInvariance, subject: SGLangSubject) -> CheckResult:
    """Every row is judged by the oracle in every size; the first row's values are held against those it has alone."""
    rows = in_batches(subject, spec.batches, spec.seed)
    judged = Judged(rows, subject.session.dtype)
    alone = rows[0]
    measurements = judged.measurements()
    for size, row in ((len(spec.batches[r.batch].composition), r) for r in rows[1:] if r.row == 0):
        measurements += _moved(size, beside(row, alone.answer), spec.exact)
    return CheckResult(tuple(measurements), _evidence(subject, spec.batches, judged))


def _moved(size: int, row: Row, exact: bool) -> list[Measurement]:
    """How far the first row moves in a batch of `size` rows. A token that it goes on with otherwise counts as moved."""
    compared = 0 if row.alone is None else len(row.alone)
    moved = row.moved + len(row.served) - compared
    name, note = f"positions_not_bitwise_equal_in_{size}_rows", f"of {len(row.served)}, beside the row alone"
    counted = limits.exactly_none(name, moved, note) if exact else limits.context(name, float(moved), "count", note)
    return [limits.context(f"max_abs_to_alone_in_{size}_rows", row.to_alone, "nat"), counted]


def _evidence(
    subject: SGLangSubject, batches: Sequence[MixedBatch], judged: Judged, slots: int | None = None
) -> dict[str, JsonValue]:
    red = judged.red()
    worst = max(judged.rows, key=lambda row: np.inf if np.isnan(row.error) else row.error)
    found: dict[str, JsonValue] = {
        "worst": _worst_position(worst),
        "batches": [_batch(place, batch, red, slots) for place, batch in enumerate(batches)],
        "errors": _drawn(judged, worst.batch),
    }
    if not red or not subject.explains:
        return found
    summary, told = told_of(subject.oracle, judged, red)
    rows: list[JsonValue] = [_red(judged, row, says) for row, says in zip(red, told, strict=False)]
    return {"explanation": {"says": summary}, "red_rows": rows, **found}


def _batch(place: int, batch: MixedBatch, red: Sequence[Row], slots: int | None) -> JsonValue:
    """What was sent in one message; with more identities than slots it cannot be one batch of the engine."""
    return {
        "batch": place,
        "rows": len(batch.composition),
        "prompt_tokens": sum(batch.prompt_lengths),
        "splits": slots is not None and len(set(batch.composition)) > slots,
        "identities": " ".join(name or "base" for name in batch.composition),
        "red": " ".join(str(row.row) for row in red if row.batch == place) or "none",
    }


def _red(judged: Judged, row: Row, says: str) -> JsonValue:
    places = judged.outside(row)
    return {
        "batch": row.batch,
        "row": row.row,
        "identity": row.identity or "base",
        "prompt": row.prompt_length,
        "max_abs_error": shown(row.error),
        "max_abs_to_solo": shown(row.to_alone),
        "positions": f"{len(places)} of {len(row.served)}: " + " ".join(map(str, places[:_PLACES_TOLD])),
        "says": says,
    }


def _worst_position(row: Row) -> JsonValue:
    told: dict[str, JsonValue] = {"batch": row.batch, "row": row.row, "identity": row.identity or "base"}
    if not row.served.size:
        return told
    worst = metrics.farthest(row.served, row.oracle)
    alone = row.alone is not None and worst < len(row.alone)
    return {
        **told,
        "position": worst + 1,
        "token": row.text[worst + 1],
        "served": shown(row.served[worst]),
        "oracle": shown(row.oracle[worst]),
        "peer": shown(row.peer[worst]),
        "alone": shown(row.alone[worst]) if alone and row.alone is not None else None,
    }


def _drawn(judged: Judged, batch: int) -> JsonValue:
    """Errors along the rows of one batch, joined."""
    rows = [row for row in judged.rows if row.batch == batch and row.served.size]
    served, oracle, peer = (np.concatenate([getattr(r, part) for r in rows]) for part in ("served", "oracle", "peer"))
    ends = np.cumsum([len(row.served) for row in rows])
    window = window_for(len(served))
    return ErrorByPosition(
        unit="nat",
        window=window,
        starts=(0, *(int(end) for end in ends[:-1])),
        served=largest_of_each(metrics.distances(served, oracle), window),
        peer=largest_of_each(metrics.distances(peer, oracle), window),
        limit=judged.largest_error.limit or 0.0,
    ).as_evidence()
