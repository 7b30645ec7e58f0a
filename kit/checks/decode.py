"""Checks of generated tokens: decode against prompt, one request repeated, a prompt found in the cache."""

from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from kit.check_spec import CacheReuse, DecodeLogprobs, Repeatability
from kit.checks.explanation import explanation
from kit.checks.logprobs import Compared, accuracy, by_position, compare, same_again, worst_position
from kit.checks.outcome import CheckResult
from kit.measurement import Measurement
from kit.oracles import limits, metrics
from kit.subjects.sglang_engine import Generated, Served, SGLangSubject
from kit.synthetic.prompts import prompts as seeded_prompts

Spec = DecodeLogprobs | Repeatability | CacheReuse


def check_decode(spec: DecodeLogprobs, subject: SGLangSubject) -> CheckResult:
    """Two routes to the same logprobs: generated one by one, and sent as a prompt.

    The oracle answers for the text that the engine chose. That each choice was the best is judged beside it, since an
    engine that samples from wrong logits could still report right logprobs.
    """
    request = _Request(spec, subject)
    answer = request.send()
    if not answer.tokens:
        return CheckResult((request.missing(answer),))
    decoded, text = request.compare(answer), request.text(answer)
    tail = _last(subject.alone([text], spec.adapter)[0], len(answer.tokens))
    routes = compare(subject, [text], spec.adapter, [tail], decoded.starts)
    gap = _largest_gap(subject, decoded, spec.adapter)
    measurements = [
        request.missing(answer),
        *accuracy(decoded),
        *same_again("prompt_route", decoded, routes),
        limits.exactly_none("prompt_route_wrong_tokens", _wrong(routes, subject), "token ids that are not the text's"),
        limits.best_choice(gap, decoded.largest_error),
    ]
    return CheckResult(tuple(measurements), request.evidence(decoded))


def check_repeatability(spec: Repeatability, subject: SGLangSubject) -> CheckResult:
    """Nothing else is in the batch, so nothing may differ: not the tokens, not a bit of a logprob.

    Whether they are right is asked by other cases.
    """
    request = _Request(spec, subject)
    answers = [request.send() for _ in range(spec.times)]
    first = answers[0]
    different = sum(not _identical(answer, first) for answer in answers)
    broken = sum(metrics.non_finite(answer.logprobs) for answer in answers)
    note = f"of {spec.times} answers to one request, those that are not the first one bit by bit"
    measurements = (
        request.missing(first),
        limits.exactly_none("non_finite", broken, "NaN or infinite logprobs"),
        limits.exactly_none("answers_unlike_the_first", different, note),
    )
    return CheckResult(measurements, {"generated": [*first.tokens]})


def check_cache_reuse(spec: CacheReuse, subject: SGLangSubject) -> CheckResult:
    """The prompt is sent twice; the second time most of it must come from the cache, else nothing is proved."""
    request = _Request(spec, subject)
    cold, warm = request.send(), request.send()
    measurements = [
        request.missing(cold),
        request.missing(warm),
        limits.exactly_none("cached_tokens_cold", cold.cached, "tokens from the cache before anything was in it"),
        limits.at_least_count("cached_tokens", warm.cached, spec.prompt_length // 2, "half of the prompt"),
    ]
    if not (cold.tokens and warm.tokens):
        return CheckResult(tuple(measurements))
    again = request.compare(warm)
    measurements += accuracy(again)
    measurements.append(limits.best_choice(_largest_gap(subject, again, spec.adapter), again.largest_error))
    if cold.tokens == warm.tokens:
        measurements += same_again("cold", again, request.compare(cold))
    evidence: dict[str, JsonValue] = {"cached_tokens": warm.cached, "same_tokens": cold.tokens == warm.tokens}
    return CheckResult(tuple(measurements), evidence | request.evidence(again))


@dataclass(frozen=True)
class _Request:
    """One prompt of one identity, to be continued."""

    spec: Spec
    subject: SGLangSubject

    @property
    def prompt(self) -> list[int]:
        return seeded_prompts([self.spec.prompt_length], self.subject.vocabulary, self.spec.seed)[0]

    def send(self) -> Generated:
        return self.subject.generate([self.prompt], [self.spec.adapter], self.spec.new_tokens)[0]

    def text(self, answer: Generated) -> list[int]:
        return [*self.prompt, *answer.tokens]

    def missing(self, answer: Generated) -> Measurement:
        count = self.spec.new_tokens - len(answer.tokens)
        return limits.exactly_none("missing_tokens", count, f"of {self.spec.new_tokens} tokens to generate")

    def compare(self, answer: Generated) -> Compared:
        """The answer beside what oracle and peer say of the same tokens."""
        text = [self.text(answer)]
        return compare(self.subject, text, self.spec.adapter, [answer], [self.spec.prompt_length])

    def evidence(self, compared: Compared) -> dict[str, JsonValue]:
        return {
            **explanation(self.subject, compared, self.spec.adapter),
            "generated": [int(token) for token in compared.prompts[0][compared.starts[0] :]],
            "worst": worst_position(compared),
            "errors": by_position(compared),
        }


def _last(served: Served, count: int) -> Served:
    return Served(logprobs=served.logprobs[-count:], tokens=served.tokens[-count:])


def _wrong(routes: Compared, subject: SGLangSubject) -> int:
    """Wrong token ids, the last id of the vocabulary aside: finding 0001, which has a case of its own."""
    asked = routes.prompts[0][routes.starts[0] :]
    return sum(given != token for given, token in zip(routes.tokens, asked, strict=True) if token < subject.vocabulary)


def _identical(left: Generated, right: Generated) -> bool:
    return left.tokens == right.tokens and left.logprobs.tobytes() == right.logprobs.tobytes()


def _largest_gap(subject: SGLangSubject, decoded: Compared, adapter: str | None) -> float:
    """By how much the best token beats the chosen one at most, by the oracle, nat."""
    return float(np.max(subject.oracle.behind_best(decoded.prompts[0], adapter)[decoded.starts[0] - 1 :]))
