"""What operations do on the machine: memory, shuffles and matrix instructions."""

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from iree.compiler import ir

from kit.offline.mlir.machine import Array, Machine, MlirFault, View, allocate_lds
from kit.offline.mlir.types import DYNAMIC, dtype_of, integers, shape_and_dtype

Act: TypeAlias = Callable[..., Any]
"""From machine and operands to the result, a tuple of results, or None."""

NOTHING = {
    *("amdgpu.lds_barrier", "gpu.barrier", "rocdl.sched.barrier", "rocdl.sched.group.barrier", "rocdl.s.setprio"),
    *("rocdl.s.barrier", "rocdl.s.waitcnt", "memref.dealloc", "llvm.intr.assume"),
}
"""Order between threads and hints to the scheduler: lockstep keeps every order."""


def _axis(operation: Any) -> int:
    match = re.search(r"dim ([xyz])>", str(operation.attributes["dimension"]))
    if match is None:
        raise MlirFault(f"no dimension in {operation}")
    return "xyz".index(match[1])


def _thread_id(operation: Any) -> Act:
    axis = _axis(operation)
    return lambda machine: machine.thread_id(axis)


def _block_id(operation: Any) -> Act:
    axis = _axis(operation)
    return lambda machine: machine.block_id(axis)


def _subspan(operation: Any) -> Act:
    def act(machine: Machine, buffer: Array, offset: Array) -> View:
        if offset.any():
            raise MlirFault("a binding that starts behind its first element is not followed")
        return View(buffer, np.zeros(1, dtype=np.int64), ())

    return act


def _alloc(operation: Any) -> Act:
    kind = ir.MemRefType(operation.results[0].type)
    if str(kind.element_type) != "i8" or "workgroup" not in str(kind.memory_space):
        raise MlirFault(f"only LDS in bytes is allocated, found {kind}")
    (size,) = kind.shape
    return lambda machine: allocate_lds(machine, size)


def _view(operation: Any) -> Act:
    kind = ir.MemRefType(operation.results[0].type)
    dtype, shape = dtype_of(kind.element_type), list(kind.shape)
    strides = tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize

    def act(machine: Machine, source: View, offset: Array) -> View:
        start = machine.one(offset, "the start of a view")
        if start + size > source.storage.shape[-1]:
            raise MlirFault(f"a view of {size} bytes at {start} in {source.storage.shape[-1]} bytes")
        return View(source.storage[:, start : start + size].view(dtype), np.zeros(1, dtype=np.int64), strides)

    return act


def _reinterpret_cast(operation: Any) -> Act:
    offsets = integers(operation.attributes, "static_offsets")
    strides = integers(operation.attributes, "static_strides")
    sizes = sum(size == DYNAMIC for size in integers(operation.attributes, "static_sizes"))

    def act(machine: Machine, source: View, *dynamic: Array) -> View:
        given = list(dynamic)
        offset = given.pop(0) if offsets[0] == DYNAMIC else np.full(1, offsets[0], dtype=np.int64)
        given = given[sizes:]
        return View(source.storage, offset, tuple(given.pop(0) if s == DYNAMIC else s for s in strides), source.valid)

    return act


def _memref_cast(operation: Any) -> Act:
    return lambda machine, source: source


def _buffer_cast(operation: Any) -> Act:
    """The bytes that a raw buffer descriptor reaches; reads behind them give zero, writes are dropped (CDNA3 ISA, 9.1.5)."""
    if "resetOffset" not in operation.attributes:
        raise MlirFault(f"a buffer descriptor that keeps the offset is not followed: {operation}")
    bytes_given = integers(operation.attributes, "operandSegmentSizes")[1]

    def act(machine: Machine, source: View, *dynamic: Array) -> View:
        reach = machine.one(dynamic[0], "the size of a buffer") if bytes_given else source.storage.nbytes
        return View(source.storage, source.offset, source.strides, reach // source.storage.itemsize)

    return act


def _load(operation: Any) -> Act:
    shape, dtype = shape_and_dtype(operation.results[0].type)
    width = int(np.prod(shape, dtype=np.int64))

    def act(machine: Machine, source: View, *indices: Array) -> Array:
        return _typed(source, dtype).read(machine, indices, width).reshape(machine.lanes, *shape)

    return act


def _typed(source: View, dtype: "np.dtype[Any]") -> View:
    if source.storage.dtype != dtype:
        raise MlirFault(f"{dtype} is read from or written to a memref of {source.storage.dtype}")
    return source


def _masked_load(operation: Any) -> Act:
    (width,), dtype = shape_and_dtype(operation.results[0].type)

    def act(machine: Machine, source: View, *rest: Array) -> Array:
        *indices, mask, otherwise = rest
        return np.where(mask, _typed(source, dtype).read(machine, tuple(indices), width, mask), otherwise)

    return act


def _masked_store(operation: Any) -> Act:
    def act(machine: Machine, target: View, *rest: Array) -> None:
        *indices, mask, values = rest
        _typed(target, values.dtype).write(machine, tuple(indices), values, mask)

    return act


def _store(operation: Any) -> Act:
    def act(machine: Machine, values: Array, target: View, *indices: Array) -> None:
        flat = machine.spread(values).reshape(machine.lanes, -1)
        _typed(target, values.dtype).write(machine, indices, flat)

    return act


def _shuffle(operation: Any) -> Act:
    match = re.search(r"shuffle_mode (\w+)>", str(operation.attributes["mode"]))
    sources: dict[str, Callable[[Array, Array], Array]] = {
        "xor": lambda lane, offset: lane ^ offset,
        "down": lambda lane, offset: lane + offset,
        "up": lambda lane, offset: lane - offset,
        "idx": lambda lane, offset: offset + 0 * lane,
    }
    if match is None or match[1] not in sources:
        raise MlirFault(f"this shuffle is not followed: {operation}")
    source_of = sources[match[1]]

    def act(machine: Machine, value: Array, offset: Array, width: Array) -> tuple[Array, Array]:
        segment = machine.one(width, "the width of a shuffle")
        every = np.arange(machine.lanes)
        lane = every % segment
        source = source_of(lane, offset.astype(np.int64))
        valid = (source >= 0) & (source < segment)
        return machine.spread(value)[every - lane + np.where(valid, source, lane)], valid

    return act


def _mfma(operation: Any) -> Act:
    """D = A B + C on one wave of 64 lanes.

    Lane layouts as in AMD's matrix instruction calculator: lane l holds row (A) or column (B) l mod M and the K values of
    its group l div M; register r of D in lane l is column l mod M, and row 4 (l div 16) + r for M = 16, or
    8 (r div 4) + 4 (l div 32) + r mod 4 for M = 32. Products and sums are made in float32.
    """
    rows, columns, depth, blocks = (operation.attributes[name].value for name in ("m", "n", "k", "blocks"))
    plain = "none" in str(operation.attributes["blgp"]) and not operation.attributes["cbsz"].value
    if rows != columns or rows not in (16, 32) or blocks != 1 or not plain:
        raise MlirFault(f"this matrix instruction is not followed: {operation}")
    wave = 64
    groups = wave // rows
    lane, register = np.arange(wave)[:, None], np.arange(rows * columns // wave)[None]
    row = 4 * (lane // 16) + register if rows == 16 else 8 * (register // 4) + 4 * (lane // 32) + register % 4
    column = np.broadcast_to(lane % columns, row.shape)

    def side(machine: Machine, value: Array) -> Array:
        value = machine.spread(value).astype(np.float32)
        if value.reshape(machine.lanes, -1).shape[1] * groups != depth:
            raise MlirFault(f"{value.shape[1:]} values a lane make no depth of {depth}")
        waves = value.reshape(-1, groups, rows, depth // groups)
        return waves.transpose(0, 2, 1, 3).reshape(-1, rows, depth)

    def act(machine: Machine, left: Array, right: Array, sum_so_far: Array) -> Array:
        if machine.subgroup != wave or machine.group_size % wave:
            raise MlirFault(f"a matrix instruction needs whole waves of {wave} lanes")
        machine.counts["matrix_operations"] += machine.lanes // wave
        product = side(machine, left) @ side(machine, right).transpose(0, 2, 1)
        return (product[:, row, column].reshape(machine.lanes, -1) + sum_so_far).astype(np.float32)

    return act


BUILDERS: dict[str, Callable[[Any], Act]] = {
    "gpu.thread_id": _thread_id,
    "gpu.block_id": _block_id,
    "stream.binding.subspan": _subspan,
    "memref.alloc": _alloc,
    "memref.view": _view,
    "memref.reinterpret_cast": _reinterpret_cast,
    "memref.cast": _memref_cast,
    "amdgpu.fat_raw_buffer_cast": _buffer_cast,
    "vector.load": _load,
    "memref.load": _load,
    "vector.maskedload": _masked_load,
    "vector.maskedstore": _masked_store,
    "vector.store": _store,
    "memref.store": _store,
    "gpu.shuffle": _shuffle,
    "amdgpu.mfma": _mfma,
}
