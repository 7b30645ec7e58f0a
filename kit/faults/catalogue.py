"""The faults that kit can inject to prove that its batteries see them. Data only; `kit.faults.apply` acts."""

from kit.attention_spec import Extend, GroupedDecode, Prefill
from kit.check_spec import (
    AdapterLife,
    AllReduce,
    BatchInvariance,
    CachedIdentities,
    CacheReuse,
    DecodeLogprobs,
    FirstRequests,
    GivenPrompt,
    MixedBatches,
    PromptLogprobs,
    TrainerLogprobs,
)
from kit.errors import UsageFault
from kit.faults.adapter_catalogue import ADAPTER_FAULTS, ANSWER_FAULTS, RANK_FAULTS, adapter_must_see
from kit.faults.container_catalogue import CONTAINER_FAULTS
from kit.faults.engine_catalogue import ENGINE_FAULTS
from kit.faults.engine_seen import engine_must_see
from kit.faults.kernel_catalogue import KERNEL_FAULTS, must_see
from kit.faults.kind import FaultKind
from kit.faults.lora_kernel_catalogue import LORA_KERNEL_FAULTS, lora_kernel_must_see
from kit.faults.process_catalogue import PROCESS_FAULTS
from kit.faults.report_catalogue import REPORT_FAULTS
from kit.faults.wave_catalogue import WAVE_FAULTS, wave_must_see
from kit.lora_kernel_spec import LoraKernel
from kit.names import unknown
from kit.offline_spec import ExecuteMlir
from kit.plan import Case, InjectedFault
from kit.synthetic.program_names import RELOAD

FAULTS: dict[str, FaultKind] = {
    fault.name: fault
    for fault in (
        *ADAPTER_FAULTS,
        *ANSWER_FAULTS,
        *RANK_FAULTS,
        *KERNEL_FAULTS,
        *LORA_KERNEL_FAULTS,
        *WAVE_FAULTS,
        *ENGINE_FAULTS,
        *PROCESS_FAULTS,
        *CONTAINER_FAULTS,
        *REPORT_FAULTS,
    )
}

MARK = "@"
"""In a self-test, between the id of a case and the fault, or the number of the fault-free round, under which it is asked."""

SWEEP = "sweep:"
"""Begins the mark of a case that is swept; fault and dtype follow, with a colon between."""

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


def parse_injected(text: str) -> InjectedFault:
    """As `parse_fault`, for a fault of a whole run.

    Raises:
        UsageFault: also for a fault of processes, containers or records, which no battery sees.
    """
    fault = parse_fault(text)
    if FAULTS[fault.name].acts_on in ("processes", "containers", "reports"):
        raise UsageFault(f"the fault '{fault.name}' acts on no battery", "run 'kit selftest'")
    return fault


def fault_text(fault: InjectedFault) -> str:
    """The text that injects it, as `parse_fault` reads it."""
    kind = FAULTS.get(fault.name)
    return fault.name if kind and kind.strength_means is None else f"{fault.name}={fault.strength:g}"


def expected_red(faults: tuple[InjectedFault, ...], case: Case) -> bool:
    """Whether a case must be red under these faults: it judges what one of them acts on, and its inputs cannot hide it.

    Raises:
        UsageFault: an unknown fault.
    """
    for fault in faults:
        if fault.name not in FAULTS:
            raise unknown("fault", fault.name, FAULTS)
    return any(_must_see(fault.name, case) for fault in faults)


def _must_see(name: str, case: Case) -> bool:
    acts_on, spec = FAULTS[name].acts_on, case.spec
    if acts_on == "engine":
        return engine_must_see(name, case)
    match spec:
        case AllReduce():
            return acts_on == "ranks"
        case GroupedDecode() | Extend() | Prefill():
            return acts_on == "kernels" and case.id.startswith("kernels/triton-") and must_see(name, spec)
        case LoraKernel():
            return acts_on == "kernels" and lora_kernel_must_see(name, spec)
        case ExecuteMlir():
            return acts_on == "kernels" and wave_must_see(name, spec)
        case (
            PromptLogprobs(adapter=adapter)
            | GivenPrompt(adapter=adapter)
            | DecodeLogprobs(adapter=adapter)
            | CacheReuse(adapter=adapter)
        ):
            return acts_on == "answers" or (acts_on == "adapters" and _adapted(name, case, adapter))
        case MixedBatches(batches=batches) | BatchInvariance(batches=batches):
            identities = {identity for batch in batches for identity in batch.composition}
            return acts_on == "answers" or (
                acts_on == "adapters" and any(_adapted(name, case, identity) for identity in identities)
            )
        case AdapterLife() | FirstRequests() | CachedIdentities():
            served = any(_adapted(name, case, adapter) for adapter in spec.adapters[:2])
            return acts_on == "answers" or (acts_on == "adapters" and served and _serves_originals(spec))
        case TrainerLogprobs():  # upstream's limit is too wide for a scaled adapter, and there is one adapter only
            return name == "adapter-missing"
        case _:
            return False


def _adapted(fault: str, case: Case, adapter: str | None) -> bool:
    return adapter is not None and adapter_must_see(fault, case.id.split("/")[1], adapter)


def _serves_originals(spec: AdapterLife | FirstRequests | CachedIdentities) -> bool:
    """Whether an adapter of the session is served: only these get a fault, not what a program loads."""
    match spec:
        case AdapterLife(program=program):
            return program != RELOAD
        case CachedIdentities(carried=carried):
            return carried != "reload"
        case FirstRequests():
            return True
