"""The state of a run: which threads exist and which of them are active, and the memory that they reach."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
"""A value of all lanes: [lanes, *vector shape]; 1 instead of lanes where every lane has the same."""

_UNWRITTEN = 0xFF
"""Every byte of LDS before it is written: NaN as float, −1 as integer."""


class MlirFault(Exception):
    """The module does what this interpreter cannot follow, or what no hardware could do."""


@dataclass
class Machine:
    """Workgroups that run in lockstep.

    Attributes:
        group_ids: [groups, 3], the workgroup of each group, x y z.
        threads: threads of a workgroup, x y z; x runs fastest.
        subgroup: threads of a wave.
        active: [lanes], which lanes have not left the current branch or loop.
        counts: ``out_of_bounds_reads``, ``out_of_bounds_writes`` (elements that an active lane reached outside its
            buffer), ``guarded_reads`` (elements that a buffer descriptor answered with zero), ``matrix_operations``.
    """

    group_ids: npt.NDArray[np.int64]
    threads: tuple[int, int, int]
    subgroup: int
    active: npt.NDArray[np.bool_] = field(init=False)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.active = np.ones(self.lanes, dtype=np.bool_)

    @property
    def group_size(self) -> int:
        """Threads of one workgroup."""
        return self.threads[0] * self.threads[1] * self.threads[2]

    @property
    def groups(self) -> int:
        """How many workgroups run."""
        return len(self.group_ids)

    @property
    def lanes(self) -> int:
        """Threads of all workgroups."""
        return self.groups * self.group_size

    def thread_id(self, axis: int) -> Array:
        """[lanes]: x, y or z of each thread in its workgroup."""
        thread = np.arange(self.lanes, dtype=np.int64) % self.group_size
        below = int(np.prod(self.threads[:axis], dtype=np.int64))
        return np.asarray(thread // below % self.threads[axis])

    def block_id(self, axis: int) -> Array:
        """[lanes]: x, y or z of each thread's workgroup."""
        return np.repeat(self.group_ids[:, axis], self.group_size)

    def spread(self, value: Array) -> Array:
        """`value` with one row per lane."""
        return np.broadcast_to(value, (self.lanes, *value.shape[1:]))

    def one(self, value: Array, what: str) -> int:
        """The single integer that all lanes agree on.

        Raises:
            MlirFault: they do not.
        """
        if not (value == value.flat[0]).all():
            raise MlirFault(f"{what} differs between threads")
        return int(value.flat[0])


@dataclass(frozen=True)
class View:
    """A memref: typed storage, and how indices become addresses.

    Attributes:
        storage: [elements] of global memory, or [groups, elements] of LDS.
        offset: [lanes or 1], in elements.
        strides: per dimension an integer or [lanes or 1], in elements.
        valid: elements behind `offset` that a buffer descriptor reaches; None without a descriptor.
    """

    storage: Array
    offset: Array
    strides: tuple[int | Array, ...]
    valid: int | None = None

    @property
    def per_group(self) -> bool:
        """Whether each workgroup has storage of its own (LDS)."""
        return self.storage.ndim == 2

    def read(self, machine: Machine, indices: tuple[Array, ...], width: int, mask: Array | None = None) -> Array:
        """[lanes, width]: neighbouring elements from `indices` on; 0 where masked off, guarded or out of bounds."""
        address, asked, guarded = self._reach(machine, indices, width, mask)
        machine.counts["guarded_reads"] += int(np.count_nonzero(asked & guarded))
        inside = (address >= 0) & (address < self.storage.shape[-1])
        machine.counts["out_of_bounds_reads"] += int(np.count_nonzero(asked & ~guarded & ~inside))
        kept = asked & ~guarded & inside
        found = self.storage[self._place(machine, np.where(kept, address, 0))]
        return np.where(kept, found, np.zeros((), self.storage.dtype))

    def write(self, machine: Machine, indices: tuple[Array, ...], values: Array, mask: Array | None = None) -> None:
        """Store ``values`` [lanes, width]; what is masked off, guarded or out of bounds is not stored."""
        address, asked, guarded = self._reach(machine, indices, values.shape[1], mask)
        inside = (address >= 0) & (address < self.storage.shape[-1])
        machine.counts["out_of_bounds_writes"] += int(np.count_nonzero(asked & ~guarded & ~inside))
        kept = asked & ~guarded & inside
        place = self._place(machine, address)
        values = np.broadcast_to(values, address.shape)
        self.storage[tuple(np.broadcast_to(part, address.shape)[kept] for part in place)] = values[kept]

    def _reach(
        self, machine: Machine, indices: tuple[Array, ...], width: int, mask: Array | None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Per lane and element: its address, whether it is asked for, and whether the descriptor refuses it."""
        if len(indices) != len(self.strides):
            raise MlirFault(f"{len(indices)} indices into a memref of {len(self.strides)} dimensions")
        relative: Array = np.zeros(machine.lanes, dtype=np.int64)
        for index, stride in zip(indices, self.strides, strict=True):
            relative = relative + index * stride
        reached = relative[:, None] + np.arange(width)
        asked = np.broadcast_to(machine.active[:, None], reached.shape)
        if mask is not None:
            asked = asked & mask
        guarded = np.zeros_like(asked) if self.valid is None else (reached < 0) | (reached >= self.valid)
        return machine.spread(self.offset)[:, None] + reached, asked, guarded

    def _place(self, machine: Machine, address: npt.NDArray[np.int64]) -> tuple[Array, ...]:
        if not self.per_group:
            return (address,)
        group = np.repeat(np.arange(machine.groups), machine.group_size)
        return group[:, None], address


def allocate_lds(machine: Machine, size: int) -> View:
    """`size` bytes of LDS for every workgroup, not yet written."""
    storage = np.full((machine.groups, size), _UNWRITTEN, dtype=np.uint8)
    return View(storage, np.zeros(1, dtype=np.int64), (1,))
