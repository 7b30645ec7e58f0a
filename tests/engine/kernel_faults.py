"""Runs a few tiny cases on SGLang's Triton and LoRA kernels in the interpreter, honest and with every fault of them; prints JSON.

A process of its own, as Triton's mode is set before its import.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode, Prefill
from kit.check_spec import CheckSpec
from kit.checks import CheckResult, run_check
from kit.faults.catalogue import parse_fault
from kit.faults.kernel_catalogue import KERNEL_FAULTS, must_see
from kit.faults.lora_kernel_catalogue import LORA_KERNEL_FAULTS, lora_kernel_must_see
from kit.faults.switch import SwitchedSubject
from kit.lora_kernel_spec import LoraKernel
from kit.plan import InjectedFault, KernelSession
from kit.subjects import Workspace, open_subject

if TYPE_CHECKING:
    from kit.subjects.kernels.subject import LoraSubject

SMALL = {"query_heads": 4, "kv_heads": 2, "head_dim": 16, "value_dim": 16}
SPLITS = {"max_kv_splits": 2, "num_kv_splits": (2,)}
CASES: dict[str, AttentionSpec] = {
    "decode": GroupedDecode(**SMALL, **SPLITS, lengths=(5,), pages="beyond-16-bits"),
    "decode-large": GroupedDecode(**SMALL, **SPLITS, lengths=(40,), content="large"),
    "decode-one-head-a-group": GroupedDecode(
        **(SMALL | {"kv_heads": 4}), **SPLITS, lengths=(5,), dispatch=True, content="constant"
    ),
    "decode-capped": GroupedDecode(**SMALL, **SPLITS, lengths=(9,), content="large", logit_cap=5.0, sinks=True),
    "decode-window": GroupedDecode(**SMALL, **SPLITS, lengths=(20,), content="revealing", window=6),
    "decode-40-heads": GroupedDecode(
        **(SMALL | {"query_heads": 40, "kv_heads": 4}),
        max_kv_splits=1,
        num_kv_splits=(1,),
        lengths=(3,),
        content="constant",
    ),
    "extend": Extend(**SMALL, prefixes=(6,), lengths=(4,), pages="beyond-16-bits"),
    "extend-window": Extend(**SMALL, prefixes=(9,), lengths=(4,), content="revealing", window=6),
    "extend-capped": Extend(**SMALL, prefixes=(6,), lengths=(4,), content="large", logit_cap=5.0, sinks=True),
    "one-pass": Extend(**SMALL, prefixes=(6,), lengths=(4,), unified=True),
    "prefill": Prefill(**SMALL, lengths=(7,)),
    "prefill-constant": Prefill(**SMALL, lengths=(3,), content="constant"),
    "decode-80": GroupedDecode(**(SMALL | {"query_heads": 16, "head_dim": 80}), **SPLITS, lengths=(64,)),
    "extend-80": Extend(**(SMALL | {"head_dim": 80}), prefixes=(6,), lengths=(4,)),
    "prefill-80": Prefill(**(SMALL | {"head_dim": 80, "value_dim": 80}), lengths=(7,)),
    "decode-far": GroupedDecode(**SMALL, **SPLITS, lengths=(5,), first_slot=2**32 // 32),
}
BATCH = {
    "max_rank": 32,
    "ranks": (8, 0, 32, 17),
    "scalings": (1.625, 1.0, 0.6875, 0.8125),
    "adapters": (0, 1, 2, 3),
    "rows": (2, 1, 17, 3),
    "inputs": 32,
}
LORA_CASES = {
    f"{backend}-{spec.op}": (backend, spec)
    for backend in ("triton", "csgmv")
    for spec in (
        LoraKernel(op="shrink", outputs=(32, 32), **BATCH),
        LoraKernel(op="expand", outputs=(48,), **BATCH),
        LoraKernel(op="qkv", outputs=(32, 16, 16), **BATCH),
        LoraKernel(op="gate-up", outputs=(24, 24), **BATCH),
    )
}


def main() -> None:
    """Under each fault, or each one named, the cases that must see it; without a fault, and where none is named, all."""
    scratch = Path(sys.argv[1])
    session = KernelSession(
        library="triton",
        interpreted=True,
        environment={"TRITON_INTERPRET": "1", "SGLANG_USE_CPU_ENGINE": "1"},
        stand_ins=("sgl_kernel", "torchvision", "pinned_memory"),
    )
    workspace = Workspace(scratch, scratch)
    with open_subject(session, workspace) as subject:
        attention = SwitchedSubject(subject, workspace)
        lora = {name: SwitchedSubject(_lora(name, workspace), workspace) for name in ("triton", "csgmv")}

        def red_under(*faults: InjectedFault) -> dict[str, list[str]]:
            """Of the cases that must see the faults, or of all: what is red."""
            asked = [(name, attention, spec) for name, spec in CASES.items() if _asks(must_see, faults, spec)]
            asked += [
                (name, lora[backend], spec)
                for name, (backend, spec) in LORA_CASES.items()
                if _asks(lora_kernel_must_see, faults, spec)
            ]
            return {name: _red(run_check(spec, switched.under(faults))) for name, switched, spec in asked}

        found = {} if sys.argv[2:] else {"": red_under()}
        for kind in (*KERNEL_FAULTS, *LORA_KERNEL_FAULTS):
            if not sys.argv[2:] or kind.name in sys.argv[2:]:
                found[kind.name] = red_under(parse_fault(kind.as_reported))
    print(json.dumps(found))


def _lora(backend: str, workspace: Workspace) -> "LoraSubject":
    from kit.subjects.kernels.expert_lora import ExpertLoraKernels
    from kit.subjects.kernels.lora import open_lora
    from kit.subjects.kernels.subject import LoraSubject

    return LoraSubject(open_lora(backend, "cpu", workspace), ExpertLoraKernels(backend, "cpu"), "cpu", {})


def _asks(must: Callable[[str, Any], bool], faults: tuple[InjectedFault, ...], spec: CheckSpec) -> bool:
    return not faults or any(must(fault.name, spec) for fault in faults)


def _red(result: CheckResult) -> list[str]:
    return [m.name for m in result.measurements if not m.within]


if __name__ == "__main__":
    main()
