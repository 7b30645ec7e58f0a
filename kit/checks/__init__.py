"""How each kind of case is computed: one module per check. Importing this package is light."""

from typing import TYPE_CHECKING, TypeVar

from kit.attention_spec import Extend, GroupedDecode, Prefill
from kit.check_spec import (
    AdapterFile,
    AdapterLife,
    AllReduce,
    BatchInvariance,
    BatchText,
    CachedIdentities,
    CacheReuse,
    CheckSpec,
    DecodeLogprobs,
    FirstRequests,
    GivenPrompt,
    MixedBatches,
    NullCheck,
    PromptLogprobs,
    Repeatability,
    TargetModules,
    TrainerLogprobs,
    UpstreamSplitting,
    UpstreamTexts,
)
from kit.checks.outcome import CheckResult, NotApplicable
from kit.lora_kernel_spec import ExpertLora, LoraKernel
from kit.offline_spec import CompileKernel, ExecuteMlir

if TYPE_CHECKING:
    from kit.subjects import Subject

__all__ = ["CheckResult", "NotApplicable", "run_check"]

Kind = TypeVar("Kind")


def run_check(spec: CheckSpec, subject: "Subject") -> CheckResult:
    """Measure one case on an open subject. NaN and infinity end in measurements that fail, not in exceptions.

    Only what this check needs is imported.

    Raises:
        NotApplicable: the subject cannot answer this kind of case.
        OracleDisagreement: this machine's reference cannot be trusted.
    """
    match spec:
        case PromptLogprobs():
            from kit.checks import prompt_logprobs
            from kit.subjects.sglang_engine import SGLangSubject

            return prompt_logprobs.check(spec, _as(SGLangSubject, subject, spec))
        case GivenPrompt():
            from kit.checks import prompt_logprobs
            from kit.subjects.sglang_engine import SGLangSubject

            return prompt_logprobs.check_given(spec, _as(SGLangSubject, subject, spec))
        case MixedBatches():
            from kit.checks import mixed_batches
            from kit.subjects.sglang_engine import SGLangSubject

            return mixed_batches.check(spec, _as(SGLangSubject, subject, spec))
        case BatchInvariance():
            from kit.checks import mixed_batches
            from kit.subjects.sglang_engine import SGLangSubject

            return mixed_batches.check_invariance(spec, _as(SGLangSubject, subject, spec))
        case BatchText():
            from kit.checks import batch_text
            from kit.subjects.sglang_engine import SGLangSubject

            return batch_text.check(spec, _as(SGLangSubject, subject, spec))
        case UpstreamTexts() | UpstreamSplitting():
            from kit.checks import upstream_texts
            from kit.subjects.pinned_texts import PinnedTextsSubject

            return upstream_texts.check(spec, _as(PinnedTextsSubject, subject, spec))
        case AdapterFile():
            from kit.checks import adapter_file
            from kit.subjects.sglang_engine import SGLangSubject

            return adapter_file.check(spec, _as(SGLangSubject, subject, spec))
        case AdapterLife() | FirstRequests() | CachedIdentities():
            return _life(spec, subject)
        case TrainerLogprobs():
            from kit.checks import trainer_logprobs
            from kit.subjects.pinned_model import PinnedModelSubject

            return trainer_logprobs.check(spec, _as(PinnedModelSubject, subject, spec))
        case TargetModules():
            from kit.checks import target_modules
            from kit.subjects.sglang_engine import SGLangSubject

            _as(SGLangSubject, subject, spec)
            return target_modules.check()
        case DecodeLogprobs() | Repeatability() | CacheReuse():
            from kit.checks import decode
            from kit.subjects.sglang_engine import SGLangSubject

            served = _as(SGLangSubject, subject, spec)
            match spec:
                case DecodeLogprobs():
                    return decode.check_decode(spec, served)
                case Repeatability():
                    return decode.check_repeatability(spec, served)
                case CacheReuse():
                    return decode.check_cache_reuse(spec, served)
        case GroupedDecode() | Extend() | Prefill():
            from kit.checks import attention
            from kit.subjects.kernels.subject import KernelSubject

            return attention.check(spec, _as(KernelSubject, subject, spec))
        case LoraKernel():
            from kit.checks import lora_kernel
            from kit.subjects.kernels.subject import LoraSubject

            return lora_kernel.check(spec, _as(LoraSubject, subject, spec))
        case ExpertLora():
            from kit.checks import lora_kernel
            from kit.subjects.kernels.subject import LoraSubject

            return lora_kernel.check_experts(spec, _as(LoraSubject, subject, spec))
        case AllReduce():
            from kit.checks import all_reduce
            from kit.subjects.collectives import Collectives

            return all_reduce.check(spec, _as(Collectives, subject, spec))
        case CompileKernel() | ExecuteMlir():
            from kit.subjects.offline import OfflineSubject

            return _as(OfflineSubject, subject, spec).answer(spec)
        case NullCheck():
            from kit.checks import null
            from kit.subjects.null import NullSubject

            return null.check(spec, _as(NullSubject, subject, spec))


def _life(spec: AdapterLife | FirstRequests | CachedIdentities, subject: "Subject") -> CheckResult:
    from kit.checks import adapter_life, cached_identities, first_requests
    from kit.subjects.sglang_engine import SGLangSubject

    served = _as(SGLangSubject, subject, spec)
    match spec:
        case AdapterLife():
            return adapter_life.check(spec, served)
        case FirstRequests():
            return first_requests.check(spec, served)
        case CachedIdentities():
            return cached_identities.check(spec, served)


def _as(kind: type[Kind], subject: "Subject", spec: CheckSpec) -> Kind:
    if isinstance(subject, kind):
        return subject
    raise NotApplicable(f"{type(subject).__name__} does not answer {spec.check}")
