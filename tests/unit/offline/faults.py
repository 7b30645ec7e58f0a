"""Faults in the MLIR of Wave's decode kernel. Each replaces what stands there once, or says that it no longer does."""

import re
from collections.abc import Callable


def _replaced(pattern: str, new: str, count: int = 1) -> Callable[[str], str]:
    def fault(mlir: str) -> str:
        changed, found = re.subn(pattern, new, mlir, count=count)
        assert found, f"nothing matches {pattern}"
        return changed

    return fault


def _mask_off_by_one(mlir: str) -> str:
    """One position more than the split has: the comparison whose result chooses between 0 and −1e6."""
    masked = re.search(r"arith\.select (%\d+), %cst\w*, %cst\w* : vector<4xi1>, vector<4xf32>", mlir)
    assert masked, "no mask is added to the scores"
    return _replaced(rf"({masked[1]} = arith\.cmpi) slt", r"\1 sle")(mlir)


FAULTS: dict[str, Callable[[str], str]] = {
    "mask-off-by-one": _mask_off_by_one,
    "scale-1.01": _replaced(r"dense<0\.180336878>", "dense<0.182140247>"),
    "unguarded": _replaced(r"dense<1073741823> : vector<8xindex>", "dense<1000000> : vector<8xindex>"),
}
