"""What pure operations compute: dialects arith, math, affine and vector. Each builder reads an operation once, and gives its function."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from iree.compiler import ir

from kit.offline.mlir.machine import Array, MlirFault
from kit.offline.mlir.types import constant, integers, shape_and_dtype

Compute: TypeAlias = Callable[..., Array]
Builder: TypeAlias = Callable[[Any], Compute]

_TWO: dict[str, Callable[[Array, Array], Array]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.maximumf": np.maximum,  # NaN wins
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax,  # the number wins
    "arith.minnumf": np.fmin,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.ceildivsi": lambda left, right: -(-left // right),
    "arith.floordivsi": np.floor_divide,
    "arith.divsi": lambda left, right: np.sign(left) * np.sign(right) * (np.abs(left) // np.abs(right)),
    "arith.remsi": np.fmod,
}
_ONE: dict[str, Callable[[Array], Array]] = {
    "arith.negf": np.negative,
    "math.exp2": np.exp2,
    "math.exp": np.exp,
    "math.log2": np.log2,
    "math.log": np.log,
    "math.tanh": np.tanh,
    "math.absf": np.abs,
    "math.sqrt": np.sqrt,
    "math.roundeven": np.rint,
}
_CASTS = (
    *("arith.index_cast", "arith.extf", "arith.truncf", "arith.extsi", "arith.trunci", "arith.sitofp", "arith.fptosi"),
)
_SIGNED = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
"""``arith.cmpi`` 0 to 5: eq, ne, slt, sle, sgt, sge; 6 to 9 are unsigned and not followed here."""
_ORDERED: dict[int, Callable[[Array, Array], Any]] = {
    1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal,
}  # fmt: skip
"""``arith.cmpf`` 1 to 5: oeq, ogt, oge, olt, ole, false where one is NaN."""


def builder(name: str) -> Builder | None:
    """What reads operations called `name`; None where it is not a pure one that is known."""
    if name in _TWO:
        return _with_dtype(_TWO[name])
    if name in _ONE:
        return _with_dtype(_ONE[name])
    if name in _CASTS:
        return _cast
    return _SPECIAL.get(name)


def _with_dtype(function: Callable[..., Any]) -> Builder:
    def build(operation: Any) -> Compute:
        dtype = shape_and_dtype(operation.results[0].type)[1]
        return lambda *operands: np.asarray(function(*operands)).astype(dtype, copy=False)

    return build


def _cast(operation: Any) -> Compute:
    dtype = shape_and_dtype(operation.results[0].type)[1]
    return lambda value: value.astype(dtype)


def _constant(operation: Any) -> Compute:
    value = constant(operation.attributes["value"], operation.results[0].type)
    return lambda: value


def _compare_integers(operation: Any) -> Compute:
    predicate = operation.attributes["predicate"].value
    if predicate >= len(_SIGNED):
        raise MlirFault(f"unsigned comparison is not followed: {operation}")
    return _SIGNED[predicate]


def _compare_floats(operation: Any) -> Compute:
    predicate = operation.attributes["predicate"].value
    if predicate not in _ORDERED:
        raise MlirFault(f"this comparison is not followed: {operation}")
    return _ORDERED[predicate]


def _select(operation: Any) -> Compute:
    def compute(chosen: Array, left: Array, right: Array) -> Array:
        rank = max(left.ndim, right.ndim)
        return np.where(chosen.reshape(chosen.shape + (1,) * (rank - chosen.ndim)), left, right)

    return compute


def _affine_apply(operation: Any) -> Compute:
    affine = ir.AffineMap(operation.attributes["map"]) if not hasattr(operation.attributes["map"], "value") else None
    affine = affine or operation.attributes["map"].value
    (result,) = affine.results
    dimensions = affine.n_dims
    compute = _affine(result)
    return lambda *operands: np.atleast_1d(compute(operands[:dimensions], operands[dimensions:])).astype(np.int64)


_AFFINE: tuple[tuple[Any, Callable[[Any, Any], Any]], ...] = (
    (ir.AffineAddExpr, np.add),
    (ir.AffineMulExpr, np.multiply),
    (ir.AffineModExpr, np.mod),
    (ir.AffineFloorDivExpr, np.floor_divide),
    (ir.AffineCeilDivExpr, lambda left, right: -(-left // right)),
)


def _affine(expression: Any) -> Callable[[tuple[Array, ...], tuple[Array, ...]], Any]:
    """A function of (dimensions, symbols)."""
    for kind, function in _AFFINE:
        if kind.isinstance(expression):
            pair = kind(expression)
            left, right = _affine(pair.lhs), _affine(pair.rhs)
            return lambda dims, symbols: function(left(dims, symbols), right(dims, symbols))
    if ir.AffineSymbolExpr.isinstance(expression):
        symbol = ir.AffineSymbolExpr(expression).position
        return lambda dims, symbols: symbols[symbol]
    if ir.AffineDimExpr.isinstance(expression):
        dimension = ir.AffineDimExpr(expression).position
        return lambda dims, symbols: dims[dimension]
    value = np.int64(ir.AffineConstantExpr(expression).value)
    return lambda dims, symbols: value


def _broadcast(operation: Any) -> Compute:
    shape, _ = shape_and_dtype(operation.results[0].type)

    def compute(value: Array) -> Array:
        inner = value.shape[1:]
        padded = value.reshape(value.shape[0], *(1,) * (len(shape) - len(inner)), *inner)
        return np.broadcast_to(padded, (value.shape[0], *shape))

    return compute


def _from_elements(operation: Any) -> Compute:
    shape, _ = shape_and_dtype(operation.results[0].type)

    def compute(*elements: Array) -> Array:
        stacked = np.stack(np.broadcast_arrays(*elements), axis=1)
        return stacked.reshape(len(stacked), *shape)

    return compute


def _extract(operation: Any) -> Compute:
    place = _position(operation)
    return lambda value: np.asarray(value[place])


def _insert(operation: Any) -> Compute:
    return _inserted_at(_position(operation))


def _position(operation: Any) -> tuple[Any, ...]:
    """All lanes, then the position that the operation names."""
    place = integers(operation.attributes, "static_position")
    if any(index < 0 for index in place):
        raise MlirFault(f"a computed position is not followed: {operation}")
    return (slice(None), *place)


def _inserted_at(place: tuple[Any, ...]) -> Compute:
    def compute(part: Array, whole: Array) -> Array:
        lanes = max(len(part), len(whole))
        result = np.broadcast_to(whole, (lanes, *whole.shape[1:])).copy()
        result[place] = part
        return result

    return compute


def _slices(operation: Any, sizes: list[int]) -> tuple[Any, ...]:
    strides = integers(operation.attributes, "strides")
    if any(stride != 1 for stride in strides):
        raise MlirFault(f"strided slices with a stride above 1 are not followed: {operation}")
    offsets = integers(operation.attributes, "offsets")
    return (slice(None), *(slice(at, at + size) for at, size in zip(offsets, sizes, strict=False)))


def _extract_slice(operation: Any) -> Compute:
    place = _slices(operation, integers(operation.attributes, "sizes"))
    return lambda value: np.asarray(value[place])


def _insert_slice(operation: Any) -> Compute:
    shape, _ = shape_and_dtype(operation.operands[0].type)
    return _inserted_at(_slices(operation, list(shape)))


def _shape_cast(operation: Any) -> Compute:
    shape, _ = shape_and_dtype(operation.results[0].type)
    return lambda value: value.reshape(value.shape[0], *shape)


def _bitcast(operation: Any) -> Compute:
    _, dtype = shape_and_dtype(operation.results[0].type)
    return lambda value: np.ascontiguousarray(value).view(dtype)


_SPECIAL: dict[str, Builder] = {
    "arith.constant": _constant,
    "arith.cmpi": _compare_integers,
    "arith.cmpf": _compare_floats,
    "arith.select": _select,
    "affine.apply": _affine_apply,
    "vector.broadcast": _broadcast,
    "vector.from_elements": _from_elements,
    "vector.extract": _extract,
    "vector.insert": _insert,
    "vector.extract_strided_slice": _extract_slice,
    "vector.insert_strided_slice": _insert_slice,
    "vector.shape_cast": _shape_cast,
    "vector.bitcast": _bitcast,
}
