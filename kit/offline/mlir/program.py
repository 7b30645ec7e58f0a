"""A function body as steps: read once from the module, then run on a machine as often as needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kit.offline.mlir import arithmetic, device
from kit.offline.mlir.machine import Array, Machine, MlirFault

Slots: TypeAlias = dict[int, Any]
Run: TypeAlias = Callable[[Machine, Slots], None]

_ENDS = {"scf.yield", "stream.return", "func.return", "affine.yield"}


@dataclass(frozen=True)
class Body:
    """The steps of one block; values lie in numbered slots.

    Attributes:
        arguments: slots of the block's arguments.
        results: slots of what its last operation hands on.
    """

    arguments: tuple[int, ...]
    steps: tuple[Run, ...]
    results: tuple[int, ...]

    def run(self, machine: Machine, slots: Slots, given: Sequence[Any] = ()) -> list[Any]:
        """Run the steps on these arguments."""
        slots.update(zip(self.arguments, given, strict=True))
        for step in self.steps:
            step(machine, slots)
        return [slots[slot] for slot in self.results]


class Reader:
    """Reads blocks of one module."""

    def __init__(self) -> None:
        self._slots: dict[Any, int] = {}

    def body(self, block: Any) -> Body:
        """The steps of a block.

        Raises:
            MlirFault: an operation that is not known; it is named.
        """
        arguments = tuple(self._slot(argument) for argument in block.arguments)
        steps: list[Run] = []
        for wrapped in block.operations:
            operation = wrapped.operation
            if operation.name in _ENDS:
                return Body(arguments, tuple(steps), self._all(operation.operands))
            if operation.name not in device.NOTHING:
                steps.append(self._step(operation))
        return Body(arguments, tuple(steps), ())

    def _slot(self, value: Any) -> int:
        return self._slots.setdefault(value, len(self._slots))

    def _all(self, values: Any) -> tuple[int, ...]:
        return tuple(self._slot(value) for value in values)

    def _step(self, operation: Any) -> Run:
        name, operands, results = operation.name, self._all(operation.operands), self._all(operation.results)
        if name == "scf.for":
            return _loop(operands, results, self.body(operation.regions[0].blocks[0]))
        if name == "scf.if":
            branches = [self.body(region.blocks[0]) if len(region.blocks) else None for region in operation.regions]
            return _branch(operands, results, branches)
        if pure := arithmetic.builder(name):
            compute, (result,) = pure(operation), results

            def step(machine: Machine, slots: Slots) -> None:
                slots[result] = compute(*[slots[slot] for slot in operands])

            return step
        if name not in device.BUILDERS:
            raise MlirFault(f"the operation {name} is not known: {str(operation)[:200]}")
        act = device.BUILDERS[name](operation)

        def deed(machine: Machine, slots: Slots) -> None:
            value = act(machine, *[slots[slot] for slot in operands])
            slots.update(zip(results, value if isinstance(value, tuple) else (value,), strict=False))

        return deed


def _merged(chosen: npt.NDArray[np.bool_], new: Array, old: Array) -> Array:
    rank = max(new.ndim, old.ndim)
    return np.where(chosen.reshape(-1, *(1,) * (rank - 1)), new, old)


def _loop(operands: tuple[int, ...], results: tuple[int, ...], body: Body) -> Run:
    """``scf.for``: lanes whose range has ended keep their values and touch no memory until the last lane is through."""
    low, high, stride, *initial = operands

    def run(machine: Machine, slots: Slots) -> None:
        before = machine.active
        index, end, step = slots[low].copy(), slots[high], slots[stride]
        carried = [slots[slot] for slot in initial]
        while (running := before & (index < end)).any():
            machine.active = running
            new = body.run(machine, slots, [index, *carried])
            if not running.all():
                new = [_merged(running, *pair) for pair in zip(new, carried, strict=True)]
            carried = new
            index = index + step
        machine.active = before
        slots.update(zip(results, carried, strict=True))

    return run


def _branch(operands: tuple[int, ...], results: tuple[int, ...], branches: Sequence[Body | None]) -> Run:
    """``scf.if``: both branches run, each on its own lanes."""
    (condition,) = operands

    def run(machine: Machine, slots: Slots) -> None:
        before, chosen = machine.active, machine.spread(slots[condition])
        outcomes: list[list[Any]] = []
        for body, lanes in zip(branches, (before & chosen, before & ~chosen), strict=False):
            if body is None or not (lanes.any() or results):
                continue
            machine.active = lanes
            outcomes.append(body.run(machine, slots))
        machine.active = before
        if results:
            then, otherwise = outcomes
            slots.update(
                zip(results, (_merged(chosen, *pair) for pair in zip(then, otherwise, strict=True)), strict=True)
            )

    return run
