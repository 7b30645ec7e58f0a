"""Prompt logprobs of one identity against the oracle; for an adapter, also its effect on the base model."""

from pydantic import JsonValue

from kit.checks.logprobs import accuracy, by_position, compare, effect, per_prompt, worst_position
from kit.checks.outcome import CheckResult
from kit.plan import PromptLogprobs
from kit.subjects.sglang_engine import SGLangSubject
from kit.synthetic.prompts import prompts as seeded_prompts


def check(spec: PromptLogprobs, subject: SGLangSubject) -> CheckResult:
    """Each prompt is a request of its own. See `kit.checks.logprobs` for the measurements."""
    prompts = seeded_prompts(spec.prompt_lengths, subject.vocabulary, spec.seed)
    served = compare(subject, prompts, spec.adapter, subject.alone(prompts, spec.adapter))
    measurements = accuracy(served)
    if spec.adapter is not None:
        measurements += effect(served, compare(subject, prompts, None, subject.alone(prompts, None)))
    evidence: dict[str, JsonValue] = {
        "worst": worst_position(served),
        "prompts": per_prompt(served),
        "errors": by_position(served),
    }
    return CheckResult(tuple(measurements), evidence)
