"""A kernel as Wave hands it to IREE: its executable, its grid, and how the host calls it."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from iree.compiler import ir

from kit.offline.mlir.machine import Machine, MlirFault
from kit.offline.mlir.program import Body, Reader

_MOST_LANES = 32_768
"""Threads that run at once: enough to amortise Python, few enough for the cache."""

_WORKGROUP = re.compile(r"workgroup_size = \[(\d+), (\d+), (\d+)\] subgroup_size = (\d+)")
_HOST_IGNORES = {"hal.tensor.barrier", "hal.tensor.export"}


@dataclass(frozen=True)
class Kernel:
    """One module with one executable and one host function that dispatches it once."""

    text: str

    @cached_property
    def module(self) -> ir.Module:
        """The parsed module.

        Raises:
            MlirFault: it is no module that IREE reads.
        """
        try:
            return ir.Module.parse(self.text, ir.Context())
        except ir.MLIRError as error:
            raise MlirFault(f"the module cannot be parsed: {error}") from None

    @property
    def lds_bytes(self) -> int:
        """LDS that a workgroup takes: the sum of all allocations."""
        return sum(
            int(np.prod(ir.MemRefType(o.results[0].type).shape))
            for o in operations(self.module.operation)
            if o.name == "memref.alloc"
        )

    @cached_property
    def _parts(self) -> "_Parts":
        return _parts(self.module)

    def run(self, tensors: list[npt.NDArray[Any]], scalars: list[int]) -> Counter[str]:
        """Execute every workgroup; tensors that the kernel writes change in place.

        Args:
            tensors: C-contiguous, in the order of the host function: inputs, then outputs.
            scalars: integers behind them.
        Returns:
            `Machine.counts` of all workgroups.
        Raises:
            MlirFault: an operation that is not known, or arguments that are not the host function's.
        """
        parts = self._parts
        workload, arguments = _host_call(parts.host, tensors, scalars)
        single = Machine(np.zeros((1, 3), dtype=np.int64), (1, 1, 1), 1)
        grid = [single.one(size, "the grid") for size in parts.grid.run(single, {}, workload)]
        x, y, z = (np.arange(size, dtype=np.int64) for size in grid)
        groups = np.stack(np.meshgrid(z, y, x, indexing="ij"), axis=-1).reshape(-1, 3)[:, ::-1]
        counts: Counter[str] = Counter(workgroups=len(groups))
        batch = max(1, _MOST_LANES // int(np.prod(parts.threads)))
        for start in range(0, len(groups), batch):
            machine = Machine(groups[start : start + batch], parts.threads, parts.subgroup)
            with np.errstate(all="ignore"):
                parts.body.run(machine, {}, arguments)
            counts.update(machine.counts)
        return counts


@dataclass(frozen=True)
class _Parts:
    body: Body
    grid: Body
    threads: tuple[int, int, int]
    subgroup: int
    host: Any


def operations(root: Any) -> Any:
    """Every operation below `root`, itself included."""
    yield root
    for region in root.regions:
        for block in region.blocks:
            for operation in block.operations:
                yield from operations(operation.operation)


def _parts(module: ir.Module) -> _Parts:
    every = list(operations(module.operation))
    exports = [o for o in every if o.name == "stream.executable.export"]
    functions = [o for o in every if o.name == "func.func"]
    hosts = [f for f in functions if any(o.name == "flow.dispatch" for o in operations(f))]
    devices = [f for f in functions if "translation_info" in f.attributes]
    if not len(exports) == len(hosts) == len(devices) == 1:
        raise MlirFault(f"expected one kernel and its host function, found {len(devices)} and {len(hosts)}")
    match = _WORKGROUP.search(str(devices[0].attributes["translation_info"]))
    if match is None:
        raise MlirFault("the kernel names no size of its workgroups")
    x, y, z, subgroup = (int(number) for number in match.groups())
    return _Parts(
        body=Reader().body(devices[0].regions[0].blocks[0]),
        grid=Reader().body(exports[0].regions[0].blocks[0]),
        threads=(x, y, z),
        subgroup=subgroup,
        host=hosts[0],
    )


def _host_call(
    host: Any, tensors: list[npt.NDArray[Any]], scalars: list[int]
) -> tuple[list[npt.NDArray[np.int64]], list[Any]]:
    """Follow the host function up to its dispatch: the workload of the grid, and the kernel's arguments."""
    block = host.regions[0].blocks[0]
    wanted = [argument for argument in block.arguments if str(argument.type) != "!hal.fence"]
    given: list[Any] = [*tensors, *(np.asarray([scalar]) for scalar in scalars)]
    if len(wanted) != len(given):
        raise MlirFault(f"the host function takes {len(wanted)} arguments, not {len(given)}")
    values: dict[Any, Any] = dict(zip(wanted, given, strict=True))
    for wrapped in block.operations:
        operation = wrapped.operation
        match operation.name:
            case "hal.buffer_view.dim":
                size = values[operation.operands[0]].shape[operation.attributes["index"].value]
                values[operation.results[0]] = np.asarray([size])
            case "hal.tensor.import":
                values[operation.results[0]] = _checked(values[operation.operands[0]], operation.results[0].type)
            case "arith.constant":
                values[operation.results[0]] = np.asarray([operation.attributes["value"].value])
            case "tensor.dim":
                tensor, axis = (values[operand] for operand in operation.operands)
                values[operation.results[0]] = np.asarray([tensor.shape[int(axis[0])]])
            case "arith.index_cast":
                values[operation.results[0]] = values[operation.operands[0]]
            case "flow.dispatch":
                workload, arguments, *_ = operation.attributes["operandSegmentSizes"]
                taken = [values[operand] for operand in list(operation.operands)[: workload + arguments]]
                return [item.astype(np.int64) for item in taken[:workload]], [a.reshape(-1) for a in taken[workload:]]
            case name:
                raise MlirFault(f"the host operation {name} is not known: {str(operation)[:200]}")
    raise MlirFault("the host function dispatches nothing")


def _checked(tensor: npt.NDArray[Any], wanted: Any) -> npt.NDArray[Any]:
    kind = ir.RankedTensorType(wanted)
    fits = len(kind.shape) == tensor.ndim and all(
        kind.is_dynamic_dim(axis) or kind.get_dim_size(axis) == size for axis, size in enumerate(tensor.shape)
    )
    if not fits or not tensor.flags.c_contiguous:
        raise MlirFault(f"a tensor of shape {tensor.shape} where the kernel takes {wanted}, row after row")
    return tensor
