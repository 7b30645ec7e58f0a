"""Texts of one identity in batches of several, on a synthetic model: against transformers, with triage."""

from kit.check_spec import BatchText
from kit.checks.outcome import CheckResult
from kit.checks.texts import Row, compare_texts
from kit.subjects.sglang_engine import SGLangSubject
from kit.synthetic.prompts import prompts as seeded_prompts

_NOTE = "rouge_l_tolerance of SGLang's lora_utils.py without adapter, here of every identity"


def check(spec: BatchText, subject: SGLangSubject) -> CheckResult:
    """Every batch is served in one request; cases of the same batches share the answers."""
    rows = []
    for number, identities in enumerate(spec.batches):
        prompts = seeded_prompts(spec.prompt_lengths, subject.vocabulary, spec.seed + number)
        answers = subject.continued(prompts, identities, spec.new_tokens)
        told = ", ".join(identity or "base" for identity in identities)
        rows += [
            Row(f"row {place} of batch {number + 1} ({told})", identity, tuple(prompt), answer)
            for place, (identity, prompt, answer) in enumerate(zip(identities, prompts, answers, strict=True))
            if identity == spec.identity
        ]
    return compare_texts(subject, rows, spec.new_tokens, 1.0, _NOTE)
