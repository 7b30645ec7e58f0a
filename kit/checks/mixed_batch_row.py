"""One row of a batch of several identities: equal to its solo run, near the oracle, with its adapter's effect."""

from pydantic import JsonValue

from kit.check_spec import MixedBatchRow
from kit.checks.explanation import explanation
from kit.checks.logprobs import accuracy, by_position, compare, effect, same_again, worst_position
from kit.checks.outcome import CheckResult, shown
from kit.oracles import metrics
from kit.subjects.sglang_engine import SGLangSubject
from kit.synthetic.prompts import prompts as seeded_prompts


def check(spec: MixedBatchRow, subject: SGLangSubject) -> CheckResult:
    """The whole batch is served in one request, and the judged row's prompt once more alone."""
    prompts = seeded_prompts(spec.prompt_lengths, subject.vocabulary, spec.seed)
    identity, own = spec.composition[spec.row], [prompts[spec.row]]
    answer = subject.together(prompts, spec.composition)[spec.row]
    row = compare(subject, own, identity, [answer])
    solo = compare(subject, own, identity, subject.alone(own, identity))
    measurements = [*same_again("solo", row, solo), *accuracy(row)]
    if identity is not None:
        measurements += effect(row, compare(subject, own, None, subject.alone(own, None)))
    evidence: dict[str, JsonValue] = {
        "row": spec.row,
        "identity": identity or "base",
        "composition": [name or "base" for name in spec.composition],
        "worst": worst_position(row),
        "solo_at_worst": shown(solo.served[metrics.farthest(row.served, row.oracle)]),
        "errors": by_position(row),
    }
    return CheckResult(tuple(measurements), explanation(subject, row, identity) | evidence)
