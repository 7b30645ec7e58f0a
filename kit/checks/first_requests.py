"""The first request after a load, alone and beside a request in flight, and after an eviction: it is what the tenth is."""

import numpy as np
from pydantic import JsonValue

from kit.check_spec import FirstRequests
from kit.checks.adapter_life import Life
from kit.checks.logprobs import Compared, same_again
from kit.checks.outcome import CheckResult
from kit.measurement import Measurement
from kit.oracles import limits
from kit.subjects.adapter_loading import Reply
from kit.subjects.any_position import Question, ask, load_in_flight
from kit.subjects.engine_life import EngineDied
from kit.subjects.sglang_engine import SGLangSubject
from kit.synthetic.adapter_walk import PROMPTS, Content, Load, Step, Unload
from kit.synthetic.prompts import prompts as seeded_prompts

_NAME = "first"
_PROMPT = 2
_IN_FLIGHT = 48
"""Tokens that the other request generates while an adapter is loaded."""


def check(spec: FirstRequests, subject: SGLangSubject) -> CheckResult:
    """Three moments for every shape: after a load, after a load beside a request in flight, after an eviction."""
    trial = _Trial(spec, subject)
    died = False
    try:
        with subject.life.mortal("first requests"):
            try:
                for shape in spec.adapters:
                    trial.run(shape)
                    if trial.life.red:
                        break
            finally:
                trial.life.leave()
    except EngineDied:
        died = True
    note = "the engine died of a load beside a request in flight, or of what came after it"
    measurements = [limits.exactly_none("engine_deaths", int(died), note), *trial.life.measurements(subject)]
    evidence: dict[str, JsonValue] = {
        "loads": trial.life.number,
        "beside_in_flight": trial.beside,
        "red": [*trial.life.red],
    }
    return CheckResult((*measurements, *trial.measurements()), evidence)


class _Trial:
    """Attributes: beside: how many adapters were loaded before the request in flight was answered."""

    def __init__(self, spec: FirstRequests, subject: SGLangSubject) -> None:
        self._spec, self._subject = spec, subject
        self.life = Life(spec.adapters, subject, seeded_prompts(PROMPTS, subject.vocabulary, spec.seed))
        self.beside = 0
        self._again: list[Measurement] = []
        self._differing = 0

    def run(self, shape: str) -> None:
        life, number = self.life, self.life.number
        life.take(number + 1, Step("load", Load(_NAME, Content(shape, 1)), ()))
        self._over_and_over()
        life.take(number + 2, Step("unload", Unload(_NAME), ()))
        self._load_in_flight(shape)
        others = [other for other in self._spec.adapters if other != shape][: self._spec.slots]
        for other in others:
            self._ask(other)
        self._over_and_over()
        life.take(number + 4, Step("unload", Unload(_NAME), ()))

    def _load_in_flight(self, shape: str) -> None:
        """Another adapter generates a text while this one is loaded and asked at once; both must be right."""
        life, content = self.life, Content(shape, 2)
        other = next(other for other in self._spec.adapters if other != shape)
        long = Question(life.prompts[0], other, 0, _IN_FLIGHT)
        own = self._question(_NAME)
        flight = load_in_flight(self._subject, _NAME, life.folder(content), long, own)
        life.loaded(life.number + 1, _NAME, content, flight.loading)
        if flight.refusal is not None:
            life.note(Reply(flight.refusal), "failed_requests", f"serve {_NAME} beside a request in flight")
            return
        self.beside += int(flight.was_in_flight)
        life.judge(long, flight.other)
        first = life.judge(own, flight.own)
        self._compare(first, [self._ask(_NAME) for _ in range(self._spec.times - 1)])

    def _over_and_over(self) -> None:
        first, *later = [self._ask(_NAME) for _ in range(self._spec.times)]
        self._compare(first, later)

    def _compare(self, first: Compared, later: list[Compared]) -> None:
        for other in later:
            if first.prompts != other.prompts:
                self.life.count("other_tokens", f"{_NAME} went on in two ways")
                continue
            judged, context = same_again("later", first, other)
            self._again.append(judged)
            self._differing += int(context.value)

    def _ask(self, identity: str) -> Compared:
        question = self._question(identity)
        return self.life.judge(question, ask(self._subject, [question])[0])

    def _question(self, identity: str) -> Question:
        return Question(self.life.prompts[_PROMPT], identity)

    def measurements(self) -> list[Measurement]:
        """How far the first answers are from the later ones."""
        if not self._again:
            return []

        def use(measurement: Measurement) -> float:
            return measurement.value / (measurement.limit or np.finfo(float).tiny)

        return [
            max(self._again, key=use),
            limits.context("positions_not_bitwise_equal_to_later", float(self._differing), "count"),
            limits.at_least_count("loads_beside_in_flight", self.beside, 1, "else nothing is proved of these"),
        ]
