"""Faults of Wave's attention kernels: the MLIR that Wave emits is changed before it is executed (`kit.offline.mlir`)."""

import math
import re
from collections.abc import Iterable
from typing import Final

from kit.errors import UsageFault
from kit.faults.mlir_text import Edit, replaced, where_defined
from kit.plan import InjectedFault

_DECODE, _MERGE, _EXTEND, _PREFILL = "phase_0", "phase_1", "extend_attention", "prefill_attention"
"""Wave's names of the kernels; decode has two: one for the splits, one that merges them."""

_ONE = "vector<1xf32>"
_MASKS = r"arith\.select (%\w+), %cst\w*, %cst\w* : vector<4xi1>, vector<4xf32>"
"""What is added to scores: 0, or -1e6."""
_CAUSAL_MASKS = r"arith\.andi (%\w+), %\w+ : vector<4xi1>"
_BLOCKS = r"scf\.for %\w+ = %c0 to (%\w+) step"
_SCALES = r"arith\.mulf %\w+, (%cst\w*) : vector<4xf32>"
_MASKED_LOADS = r"vector\.broadcast (%\w+) : i1 to vector<8xi1>"

_mask_wider: Final = where_defined(_MASKS, r"cmpi slt,", "cmpi sle,")
_marked_bounds: Final = where_defined(_BLOCKS, r"affine\.apply #(map\w*)\(\)", r"affine.apply #floored_\1()")


def _blocks_rounded_down(text: str) -> str:
    """The map that the bound of a loop applies rounds down; the same map elsewhere, as in the grid, does not."""
    marked = _marked_bounds(text)
    for name in sorted(set(re.findall(r"#floored_(map\w*)\(\)", marked))):
        body = re.search(rf"^#{name} = (.+ceildiv.+)$", marked, re.MULTILINE)
        if body is None:
            return text
        marked = f"#floored_{name} = {body[1].replace('ceildiv', 'floordiv')}\n{marked}"
    return marked


_rescale_dropped: Final = replaced(
    rf"(%\w+) = arith\.subf %arg\w+, (%\w+) : {_ONE}(\s+%\w+ = math\.exp2 \1 : {_ONE})",
    rf"\1 = arith.subf \2, \2 : {_ONE}\3",
)
"""exp2(old maximum - new maximum), the factor of all that was summed before, becomes exp2(0)."""

_sum_restarted: Final = replaced(
    rf"(%\w+ = math\.exp2 %\w+ : {_ONE}\n(?:.*\n){{1,14}}?\s+%\w+ =) arith\.mulf %arg\w+, (%\w+) : {_ONE}",
    rf"\1 arith.subf \2, \2 : {_ONE}",
)
"""The sum of weights so far, times that factor, becomes 0."""

_lanes_left_out: Final = replaced(
    rf"(arith\.addf %\w+, %\w+ : {_ONE}\s+%\w+, %\w+ = gpu\.shuffle  xor %\w+,) %c32_i32,", r"\1 %c16_i32,"
)
"""The second step of a sum over a wave reaches 16 lanes further, as the first did, and not 32."""


def _operands_swapped(text: str) -> str:
    """The last matrix product, of values and weights, takes them the other way round."""
    *_, last = [None, *re.finditer(r"(amdgpu\.mfma 16x16x\d+) (%\w+) \* (%\w+)", text)]
    return text if last is None else f"{text[: last.start()]}{last[1]} {last[3]} * {last[2]}{text[last.end() :]}"


def _scaled(factor: float) -> Edit:
    """The constant by which scores are multiplied."""
    return where_defined(_SCALES, r"dense<(\d\.\d+(?:[eE][-+]\d+)?)>", lambda m: f"dense<{factor * float(m[1]):.9e}>")


_EVERY: Final = (_DECODE, _EXTEND, _PREFILL)
_CHANGES: Final[dict[str, dict[str, Edit]]] = {
    "wave-mask-off-by-one": dict.fromkeys(_EVERY, _mask_wider),
    "wave-causal-mask-strict": {_EXTEND: where_defined(_CAUSAL_MASKS, r"cmpi sge,", "cmpi sgt,")},
    "wave-last-block-dropped": dict.fromkeys(_EVERY, _blocks_rounded_down),
    "wave-exponent-natural": dict.fromkeys((_DECODE, _EXTEND), _scaled(math.log(2.0))),
    "wave-rescale-dropped": dict.fromkeys((*_EVERY, _MERGE), _rescale_dropped),
    "wave-sum-restarted": dict.fromkeys((*_EVERY, _MERGE), _sum_restarted),
    "wave-lanes-left-out": dict.fromkeys(_EVERY, _lanes_left_out),
    "wave-operands-swapped": dict.fromkeys(_EVERY, _operands_swapped),
    "wave-guard-inside": dict.fromkeys(
        (_DECODE, _EXTEND), replaced(r"dense<1073741823> : vector", "dense<1000000> : vector")
    ),
    "wave-load-unmasked": {
        _PREFILL: where_defined(_MASKED_LOADS, r"cmpi slt, (%\w+), %\w+", r"cmpi sge, \1, %c0"),
    },
    "wave-split-rounded-down": {_DECODE: replaced(r"arith\.ceildivsi", "arith.floordivsi")},
    "wave-empty-split": {
        _DECODE: replaced(r"cmpi eq, (%\w+), %c0 : index", r"cmpi slt, \1, %c0 : index"),
        _MERGE: replaced(r"arith\.minsi %\w+, (%c\d+) : index", r"arith.minsi \1, \1 : index"),
    },
    "wave-split-weight-natural": {_DECODE: replaced(r"math\.log2", "math.log")},
    "wave-split-weight-without-sum": {_DECODE: replaced(r"arith\.addf (%\w+#0), %\w+ :", r"arith.maximumf \1, \1 :")},
}
"""By fault and kernel. Written for what wave-lang 3.9 emits."""
_SCALE: Final = "wave-scores-scaled"


def changed_mlir(kernel: str, text: str, faults: Iterable[InjectedFault]) -> str:
    """A kernel's module with the faults that are about this kernel in it.

    Raises:
        UsageFault: what Wave emitted has no place for one of them.
    """
    for fault in faults:
        edit = _edits(fault).get(kernel)
        if edit is None:
            continue
        before, text = text, edit(text)
        if text == before:
            raise UsageFault(f"the fault '{fault.name}' finds no place in Wave's {kernel}", "use wave-lang 3.9")
    return text


def refuse_idle(faults: Iterable[InjectedFault], wanted: Iterable[str], launched: Iterable[str]) -> None:
    """Faults that are about a call must act in it.

    Args:
        wanted: the kernels of this kind of call. launched: those that were.

    Raises:
        UsageFault: a kernel that a fault changes was not launched.
    """
    for fault in faults:
        for kernel in _edits(fault):
            if kernel in wanted and kernel not in launched:
                problem = f"the fault '{fault.name}' finds no place: Wave's {kernel} was not launched"
                raise UsageFault(problem, "look why SGLang's launcher took another way")


def _edits(fault: InjectedFault) -> dict[str, Edit]:
    if fault.name == _SCALE:
        return dict.fromkeys((_DECODE, _EXTEND), _scaled(fault.strength))
    return _CHANGES.get(fault.name, {})


def changed_by_faults() -> frozenset[str]:
    """Names of the faults that act here."""
    return frozenset({*_CHANGES, _SCALE})
