"""Runs a few tiny cases on SGLang's Triton kernels in the interpreter, honest and with every fault of kernels; prints JSON.

A process of its own, as Triton's mode is set before its import.
"""

import json
import sys
from pathlib import Path

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode, Prefill
from kit.faults.catalogue import FAULTS, parse_fault
from kit.faults.kernel_catalogue import must_see
from kit.plan import InjectedFault, KernelSession
from kit.subjects import Workspace, open_subject

SMALL = {"query_heads": 4, "kv_heads": 2, "head_dim": 16, "value_dim": 16}
SPLITS = {"max_kv_splits": 2, "num_kv_splits": (2,)}
CASES: dict[str, AttentionSpec] = {
    "decode": GroupedDecode(**SMALL, **SPLITS, lengths=(5,), pages="beyond-16-bits"),
    "decode-large": GroupedDecode(**SMALL, **SPLITS, lengths=(40,), content="large"),
    "decode-one-head-a-group": GroupedDecode(
        **(SMALL | {"kv_heads": 4}), **SPLITS, lengths=(5,), dispatch=True, content="constant"
    ),
    "decode-capped": GroupedDecode(**SMALL, **SPLITS, lengths=(9,), content="dominant", logit_cap=5.0, sinks=True),
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
    "extend-capped": Extend(**SMALL, prefixes=(6,), lengths=(4,), content="dominant", logit_cap=5.0, sinks=True),
    "one-pass": Extend(**SMALL, prefixes=(6,), lengths=(4,), unified=True),
    "prefill": Prefill(**SMALL, lengths=(7,)),
    "prefill-constant": Prefill(**SMALL, lengths=(3,), content="constant"),
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
    with open_subject(session, Workspace(scratch, scratch)) as subject:
        from kit.checks import run_check

        honest = {} if sys.argv[2:] else CASES
        found = {"": {name: _red(run_check(spec, subject).measurements) for name, spec in honest.items()}}
        for name, kind in FAULTS.items():
            if kind.acts_on == "kernels" and (not sys.argv[2:] or name in sys.argv[2:]):
                fault = parse_fault(f"{name}=1.05" if kind.strength_means else name)
                found[name] = _under(fault, subject, scratch / name)
    print(json.dumps(found))


def _under(fault: InjectedFault, subject, scratch: Path) -> dict[str, list[str]]:
    from dataclasses import replace

    from kit.checks import run_check
    from kit.subjects.kernels.opening import open_sglang_triton

    names = [name for name in sys.modules if name.startswith("sglang.kernels.ops.attention.")]
    for name in names:
        if name.rpartition(".")[2] in ("decode_attention", "extend_attention", "prefill_attention"):
            del sys.modules[name]
    changed = replace(subject, library=open_sglang_triton("cpu", Workspace(scratch, scratch, (fault,))))
    return {
        name: _red(run_check(spec, changed).measurements) for name, spec in CASES.items() if must_see(fault.name, spec)
    }


def _red(measurements) -> list[str]:
    return [m.name for m in measurements if not m.within]


if __name__ == "__main__":
    main()
