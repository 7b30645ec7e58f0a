"""MLIR types and attributes as numpy knows them."""

import re
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from iree.compiler import ir

from kit.offline.mlir.machine import MlirFault

DYNAMIC = -(2**63)
"""``ShapedType::kDynamic``: a size, stride or offset that an operand gives."""

_FLOATS: dict[str, Any] = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "index": np.int64,
    "i1": np.bool_,
}
_INTEGER = re.compile(r"i(\d+)")


def dtype_of(scalar: ir.Type) -> np.dtype[Any]:
    """numpy's dtype of a scalar type; integers of odd width get the next larger one.

    Raises:
        MlirFault: there is none.
    """
    name = str(scalar)
    if name in _FLOATS:
        found: np.dtype[Any] = np.dtype(_FLOATS[name])
        return found
    if match := _INTEGER.fullmatch(name):
        for width in (8, 16, 32, 64):
            if int(match[1]) <= width:
                return np.dtype(f"int{width}")
    raise MlirFault(f"no numpy type for {name}")


def shape_and_dtype(of: ir.Type) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape (empty for scalars) and dtype of a scalar or vector type."""
    if isinstance(of, ir.VectorType):
        return tuple(of.shape), dtype_of(of.element_type)
    return (), dtype_of(of)


def constant(value: ir.Attribute, of: ir.Type) -> npt.NDArray[Any]:
    """[1, *shape]: an ``arith.constant``."""
    shape, dtype = shape_and_dtype(of)
    if isinstance(value, ir.DenseElementsAttr):
        numbers: Any = value.get_splat_value().value if value.is_splat else list(value)
        return np.broadcast_to(np.asarray(numbers).astype(dtype), shape)[None].copy()
    return np.asarray([value.value]).astype(dtype)


def integers(attributes: Any, name: str) -> list[int]:
    """A list of integers: a dense array, or an array of integer attributes."""
    attribute = attributes[name]
    if isinstance(attribute, ir.ArrayAttr):
        return [item.value for item in attribute]
    return list(attribute)
