"""The faults that kit can inject to prove that its batteries see them. Data only; `kit.faults.apply` acts."""

from dataclasses import dataclass
from typing import Literal

from kit.attention_spec import Extend, GroupedDecode, Prefill
from kit.check_spec import (
    AllReduce,
    BatchInvariance,
    CacheReuse,
    DecodeLogprobs,
    GivenPrompt,
    MixedBatches,
    PromptLogprobs,
    TrainerLogprobs,
)
from kit.errors import UsageFault
from kit.faults.kernel_catalogue import EFFECTS, must_see
from kit.names import unknown
from kit.plan import Case, InjectedFault


@dataclass(frozen=True)
class FaultKind:
    """One kind of fault.

    Attributes:
        effect: what is wrong with the subject while the fault is active.
        strength_means: what the strength says; None where the fault has none.
        neutral: the strength that changes nothing; None where the fault has none.
        acts_on: adapters; answers, so the base model's too; the ranks of an all-reduce; or attention kernels.
    """

    name: str
    effect: str
    strength_means: str | None = None
    neutral: float | None = None
    acts_on: Literal["adapters", "answers", "ranks", "kernels"] = "adapters"


FAULTS: dict[str, FaultKind] = {
    fault.name: fault
    for fault in (
        FaultKind(
            "adapter-scaling",
            "the engine gets every adapter with its scaling multiplied",
            strength_means="factor of lora_alpha",
            neutral=1.0,
        ),
        FaultKind("adapter-missing", "the engine gets every adapter with B = 0, so that it has no effect"),
        FaultKind("adapters-swapped", "the engine gets each adapter under the name of another"),
        FaultKind(
            "adapter-scaling-root",
            "the engine gets every adapter scaled by alpha / √rank, or an rsLoRA by alpha / rank",
        ),
        FaultKind("adapter-layer-dropped", "the engine gets every adapter with B = 0 in the last layer"),
        FaultKind("adapter-value-dropped", "the engine gets every adapter with B = 0 in v_proj of layer 0"),
        FaultKind("adapter-query-key-swapped", "the engine gets every adapter with q_proj and k_proj exchanged"),
        FaultKind("adapter-query-transposed", "the engine gets every adapter with q_proj transposed"),
        FaultKind(
            "position-shifted",
            "in every answer the value in the middle is that of the next position",
            acts_on="answers",
        ),
        FaultKind("positions-shifted", "in every answer each value is that of the position before", acts_on="answers"),
        FaultKind("rank-silent", "the last rank never takes part in an all-reduce", acts_on="ranks"),
        FaultKind("rank-wrong-element", "the last rank adds one wrong element to an all-reduce", acts_on="ranks"),
        *(
            FaultKind(
                name,
                effect,
                strength_means="factor" if name == "kernel-one-head-scaled" else None,
                neutral=1.0 if name == "kernel-one-head-scaled" else None,
                acts_on="kernels",
            )
            for name, effect in EFFECTS.items()
        ),
    )
}

_ONLY_STRENGTH = 1.0


def parse_fault(text: str) -> InjectedFault:
    """A fault from ``name`` or ``name=strength``, such as ``adapter-scaling=1.1``.

    Raises:
        UsageFault: unknown name (with near matches); a strength that is missing, no number or neutral, or that the
            fault does not take.
    """
    name, sign, value = text.partition("=")
    kind = FAULTS.get(name)
    if kind is None:
        raise unknown("fault", name, FAULTS)
    if kind.strength_means is None:
        if sign:
            raise UsageFault(f"the fault '{name}' takes no strength", f"write {name}")
        return InjectedFault(name=name, strength=_ONLY_STRENGTH)
    try:
        strength = float(value)
    except ValueError:
        strength = float("nan")
    if not 0.0 < strength < 1e6:
        problem = f"the fault '{name}' needs a strength ({kind.strength_means}) above 0, found '{value}'"
        raise UsageFault(problem, f"write {name}=1.1")
    if strength == kind.neutral:
        raise UsageFault(f"the fault '{name}' with strength {strength:g} changes nothing", f"write {name}=1.1")
    return InjectedFault(name=name, strength=strength)


def expected_red(faults: tuple[InjectedFault, ...], case: Case) -> bool:
    """Whether a case must be red under these faults: it judges what one of them acts on, and its inputs cannot hide it.

    Raises:
        UsageFault: an unknown fault.
    """
    for fault in faults:
        if fault.name not in FAULTS:
            raise unknown("fault", fault.name, FAULTS)
    acted_on = {FAULTS[fault.name].acts_on for fault in faults}
    match case.spec:
        case AllReduce():
            return "ranks" in acted_on
        case GroupedDecode() | Extend() | Prefill():
            seen = (f.name for f in faults if FAULTS[f.name].acts_on == "kernels" and must_see(f.name, case.spec))
            return case.id.startswith("kernels/triton-") and any(seen)
        case (
            PromptLogprobs(adapter=adapter)
            | GivenPrompt(adapter=adapter)
            | DecodeLogprobs(adapter=adapter)
            | CacheReuse(adapter=adapter)
        ):
            return "answers" in acted_on or ("adapters" in acted_on and adapter is not None)
        case MixedBatches(batches=batches) | BatchInvariance(batches=batches):
            adapted = any(identity is not None for batch in batches for identity in batch.composition)
            return "answers" in acted_on or ("adapters" in acted_on and adapted)
        case TrainerLogprobs():  # upstream's limit is too wide for a scaled adapter, and there is one adapter only
            return any(fault.name == "adapter-missing" for fault in faults)
        case _:
            return False
