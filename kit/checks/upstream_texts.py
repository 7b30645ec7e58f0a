"""Upstream's text tests of several adapters on a real model, with triage of every text that differs.

They are run_lora_multiple_batch_on_model_cases and run_lora_batch_splitting_equivalence_test of SGLang's lora_utils.py.
"""

import numpy as np
from pydantic import JsonValue

from kit.check_spec import TextBatch, UpstreamSplitting, UpstreamTexts
from kit.checks.outcome import CheckResult
from kit.checks.texts import Row, compare_texts, ended
from kit.checks.upstream_rules import MOST_TOKENS, top_logprobs
from kit.measurement import Measurement
from kit.oracles import limits, metrics
from kit.subjects.pinned_texts import PinnedTextsSubject


def check(spec: UpstreamTexts | UpstreamSplitting, subject: PinnedTextsSubject) -> CheckResult:
    """Every batch in one request; cases of the same batches share the answers."""
    return _texts(spec, subject) if isinstance(spec, UpstreamTexts) else _splitting(spec, subject)


def _texts(spec: UpstreamTexts, subject: PinnedTextsSubject) -> CheckResult:
    rows = [
        row
        for number, batch in enumerate(spec.batches)
        for row in _rows(subject, number, batch, spec.new_tokens)
        if row.identity == spec.identity
    ]
    note = f"rouge_l_tolerance of {spec.group} in SGLang's lora_utils.py"
    compared = compare_texts(subject, rows, spec.new_tokens, spec.rouge_l, note)
    numbers = sorted(
        {p for b in spec.batches for i, p in zip(b.identities, b.prompts, strict=True) if i == spec.identity}
    )
    evidence: dict[str, JsonValue] = {"other_settings_than_upstream": [*spec.differing]}
    return CheckResult((*compared.measurements, _prefill(spec, subject, numbers)), evidence | compared.evidence)


def _rows(subject: PinnedTextsSubject, number: int, batch: TextBatch, new_tokens: int) -> list[Row]:
    prompts = [subject.prompts[place] for place in batch.prompts]
    answers = subject.continued(prompts, batch.identities, new_tokens)
    told = ", ".join(identity or "base" for identity in batch.identities)
    return [
        Row(f"row {place} of batch {number + 1} ({told})", identity, prompt, answer)
        for place, (identity, prompt, answer) in enumerate(zip(batch.identities, prompts, answers, strict=True))
    ]


def _prefill(spec: UpstreamTexts, subject: PinnedTextsSubject, numbers: list[int]) -> Measurement:
    """The five largest logprobs after every token of a prompt alone, largest with largest, as upstream compares them."""
    worst, compared = 0.0, 0
    for prompt in (subject.prompts[number] for number in numbers):
        if len(prompt) > MOST_TOKENS:
            continue
        (answer,) = subject.continued([prompt], [spec.identity], 1, with_prompt=True)
        logits = subject.peer.last_logits(prompt, spec.identity, len(prompt))
        assert answer.prompt_top is not None
        worst = float(np.maximum(worst, metrics.max_abs(answer.prompt_top, top_logprobs(logits))))
        compared += 1
    note = (
        f"prefill_tolerance of {spec.group} in SGLang's lora_utils.py; prompts up to {MOST_TOKENS} tokens: {compared}"
    )
    if not compared:
        return limits.context("prefill_max_abs", 0.0, "nat", f"no prompt has at most {MOST_TOKENS} tokens")
    return limits.upstream_at_most("prefill_max_abs", worst, spec.prefill, "nat", note)


def _splitting(spec: UpstreamSplitting, subject: PinnedTextsSubject) -> CheckResult:
    """Upstream asks that a batch of several identities does not give one text.

    The prompt is the same in every row. How many identities gave several texts is told and not judged: near ties may do that.
    """
    alike = missing = broken = 0
    by_identity: dict[str | None, set[str]] = {}
    for number, batch in enumerate(spec.batches):
        rows = _rows(subject, number, batch, spec.new_tokens)
        texts = [subject.text(ended(row.answer.tokens, subject.ends)) for row in rows]
        alike += len(set(batch.identities)) > 1 and len(set(texts)) == 1
        missing += sum(spec.new_tokens - len(row.answer.tokens) for row in rows)
        broken += sum(metrics.non_finite(row.answer.logprobs) for row in rows)
        for row, text in zip(rows, texts, strict=True):
            by_identity.setdefault(row.identity, set()).add(text)
    several = sum(len(texts) > 1 for texts in by_identity.values())
    measurements = (
        limits.exactly_none("missing_tokens", missing, "tokens that were not generated"),
        limits.exactly_none("non_finite", broken, "NaN or infinite logprobs"),
        limits.exactly_none(
            "batches_of_one_text", alike, "of several identities, as upstream's batch-splitting test asks"
        ),
        limits.context("identities_of_several_texts", float(several), "count", f"of {len(by_identity)}"),
    )
    evidence: dict[str, JsonValue] = {
        "other_settings_than_upstream": [*spec.differing],
        "texts": [{"identity": i or "base", "text": t} for i, texts in by_identity.items() for t in sorted(texts)],
    }
    return CheckResult(measurements, evidence)
