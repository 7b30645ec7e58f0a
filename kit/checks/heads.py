"""The peer rule head by head: the error of one head must not drown in the others."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kit.evidence import LimitUseByHead, largest_of_each, window_for
from kit.measurement import Measurement
from kit.oracles import limits
from kit.oracles.metrics import Values

_ALIKE = 1e-12
"""Of a head's magnitude: values that differ by less are one value, which the oracle's float64 sums in several orders."""


@dataclass(frozen=True)
class Heads:
    """Errors of every head of every request, [requests, heads]: largest and rms, of the subject and of its peer.

    Attributes:
        different: how many different values the head has, row by row; equal ones are rounded alike.
    """

    largest: Values
    rms: Values
    peer_largest: Values
    peer_rms: Values
    magnitude: Values
    different: Values
    dtype: limits.Dtype

    @classmethod
    def of(cls, served: Values, oracle: Values, peer: Values, rows: tuple[int, ...], dtype: limits.Dtype) -> "Heads":
        """From [rows, heads, entries], where request i has rows[i] rows."""
        starts = np.cumsum((0, *rows))[:-1]

        def largest(values: Values) -> Values:
            return np.asarray(np.maximum.reduceat(np.max(np.abs(values), axis=2), starts, axis=0))

        def rms(values: Values) -> Values:
            sums = np.add.reduceat(np.mean(values**2, axis=2), starts, axis=0)
            return np.asarray(np.sqrt(sums / np.array(rows)[:, None]))

        with np.errstate(all="ignore"):
            off, peer_off = served - oracle, peer - oracle
            magnitude = largest(oracle)
            steps = np.diff(np.sort(oracle, axis=2), axis=2) > _ALIKE * np.repeat(magnitude, rows, axis=0)[:, :, None]
            different = np.add.reduceat(1.0 + np.count_nonzero(steps, axis=2), starts, axis=0)
            return cls(largest(off), rms(off), largest(peer_off), rms(peer_off), magnitude, different, dtype)

    def use(self) -> Values:
        """How much of its limit the largest error of each head uses; NaN where the subject is NaN."""
        limit = _limit(self.peer_largest, self._unit())
        return _use(self.largest, limit)

    def worst(self) -> tuple[int, int]:
        """Request and head that use most of their limit."""
        return _top(self.use())

    def measurements(self) -> list[Measurement]:
        """The worst head by its largest error, and the worst by its rms."""
        place = self.worst()
        floor = self._unit() * np.vectorize(limits.rms_floor)(self.different)
        by_rms = _top(_use(self.rms, _limit(self.peer_rms, floor)))
        return [
            limits.peer_max_abs(
                "head_max_abs_error",
                *self._at(self.largest, self.peer_largest, place),
                float(self.magnitude[place]),
                "1",
            ),
            limits.peer_rms(
                "head_rms_error",
                *self._at(self.rms, self.peer_rms, by_rms),
                float(self.magnitude[by_rms]),
                "1",
                float(self.different[by_rms]),
            ),
        ]

    def outside(self) -> int:
        """How many heads break their limit."""
        return int(np.count_nonzero(~(self.use() <= 1.0)))

    def drawn(self) -> LimitUseByHead:
        """How much of its limit every head uses, request by request."""
        use = self.use()
        window = window_for(use.size)
        return LimitUseByHead(window=window, use=tuple(largest_of_each(row.tolist(), window) for row in use))

    def _unit(self) -> Values:
        units = [limits.unit_in_last_place(self.dtype, value) for value in self.magnitude.ravel().tolist()]
        return np.array(units).reshape(self.magnitude.shape)

    def _at(self, mine: Values, peers: Values, place: tuple[int, int]) -> tuple[float, float, limits.Dtype]:
        return float(mine[place]), float(peers[place]), self.dtype


def _limit(peer: Values, floor: Values) -> Values:
    return np.asarray(np.where(np.isfinite(peer), limits.PEER_FACTOR * peer + floor, floor))


def _use(error: Values, limit: Values) -> Values:
    with np.errstate(all="ignore"):
        return np.asarray(np.where((error == 0.0) & (limit == 0.0), 0.0, error / limit))


def _top(use: npt.NDArray[np.float64]) -> tuple[int, int]:
    flat = int(np.argmax(np.where(np.isnan(use), np.inf, use)))
    request, head = divmod(flat, use.shape[1])
    return request, head
