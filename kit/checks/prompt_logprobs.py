"""Prompt logprobs of one identity against the oracle; for an adapter, also its effect on the base model."""

from pydantic import JsonValue

from kit.check_spec import GivenPrompt, PromptLogprobs
from kit.checks.explanation import explanation
from kit.checks.logprobs import Compared, accuracy, by_position, compare, effect, per_prompt, worst_position
from kit.checks.outcome import CheckResult
from kit.measurement import Measurement
from kit.subjects.sglang_engine import SGLangSubject
from kit.synthetic.prompts import prompts as seeded_prompts


def check(spec: PromptLogprobs, subject: SGLangSubject) -> CheckResult:
    """Each prompt is a request of its own. See `kit.checks.logprobs` for the measurements."""
    prompts = seeded_prompts(spec.prompt_lengths, subject.vocabulary, spec.seed)
    served = _served(subject, prompts, spec.adapter)
    measurements = accuracy(served)
    if spec.adapter is not None:
        measurements += effect(served, compare(subject, prompts, None, subject.at_first(prompts, None)))
    return _result(served, measurements, explanation(subject, served, spec.adapter))


def check_given(spec: GivenPrompt, subject: SGLangSubject) -> CheckResult:
    """One prompt that is written out. Evidence: what was asked and what the engine says it answered."""
    prompts = [list(spec.tokens)]
    served = _served(subject, prompts, spec.adapter)
    result = _result(served, accuracy(served), explanation(subject, served, spec.adapter))
    tokens: dict[str, JsonValue] = {"asked": [*prompts[0][1:]], "answered": [*served.tokens]}
    return CheckResult(result.measurements, {**tokens, **result.evidence})


def _served(subject: SGLangSubject, prompts: list[list[int]], adapter: str | None) -> Compared:
    return compare(subject, prompts, adapter, subject.alone(prompts, adapter))


def _result(served: Compared, measurements: list[Measurement], explained: dict[str, JsonValue]) -> CheckResult:
    evidence: dict[str, JsonValue] = {
        "worst": worst_position(served),
        "prompts": per_prompt(served),
        "errors": by_position(served),
    }
    return CheckResult(tuple(measurements), explained | evidence)
