"""One prompt under the base model and two adapters, cold and warm: nobody finds what another identity left in the cache.

Whatever a request carries beside, its identity counts. `_CARRIED` says, for each kind of company, what each request carries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from pydantic import JsonValue

from kit.check_spec import CachedIdentities
from kit.checks.adapter_life import Life
from kit.checks.logprobs import Compared
from kit.checks.outcome import CheckResult, NotApplicable
from kit.measurement import Measurement
from kit.oracles import limits, metrics
from kit.subjects.any_position import NOTHING, Question, Text, ask
from kit.subjects.engine_life import EngineDied
from kit.subjects.sglang_engine import SGLangSubject
from kit.synthetic.adapter_walk import Content, Load, Reload, Step
from kit.synthetic.prompts import prompts as seeded_prompts

_NEW_TOKENS = 8
_NAME = "cached"
_CAPACITY = 4096
_TURN = 9
"""Tokens of a later turn."""
_WARM = 0.5
"""Of a prompt, what must be found when the same identity asks again: else the cache is not in use and nothing is proved."""

_EXPECTED = {True: "warm", False: "cold", None: "warm or cold"}

Carried = Mapping[str, JsonValue]
Company = Callable[[SGLangSubject, str | None, tuple[str, str]], Carried]


def check(spec: CachedIdentities, subject: SGLangSubject) -> CheckResult:
    """See `_CARRIED` and `_PLANS` for what is asked.

    Raises:
        NotApplicable: this SGLang knows no such field.
    """
    if spec.carried == "cache-salt":
        _expect_salt()
    prompt = seeded_prompts([spec.prompt_length], subject.vocabulary, spec.seed)[0]
    trial = _Trial(spec, subject, Life(spec.adapters, subject, [prompt]), prompt)
    died = False
    try:
        with subject.life.mortal(f"cached identities: {spec.carried}"):
            try:
                _PLANS.get(spec.carried, _in_turn)(trial)
            finally:
                trial.life.leave()
    except EngineDied:
        died = True
    evidence: dict[str, JsonValue] = {"asked": [*trial.told]}
    if trial.life.red:
        evidence |= {"red": [*trial.life.red], **trial.life.explanation(), **trial.found_of_others()}
    engine = limits.exactly_none("engine_deaths", int(died), "the engine died")
    return CheckResult((engine, *trial.measurements()), evidence)


@dataclass
class _Asked:
    """One request: who asked for what weights, whether it must find its prompt in the cache or must not, and what came back."""

    who: str
    warm: bool | None
    answer: Text
    compared: Compared


class _Trial:
    def __init__(self, spec: CachedIdentities, subject: SGLangSubject, life: Life, prompt: list[int]) -> None:
        self.spec, self.subject, self.life, self.prompt = spec, subject, life, prompt
        self.asked: list[_Asked] = []

    def ask(
        self,
        identity: str | None,
        key: str,
        carried: Carried = NOTHING,
        prompt: list[int] | None = None,
        either: bool = False,
    ) -> Text:
        """Ask; `key` is whose values may be found in the cache, so a request is warm where the same key has asked before.

        Args:
            prompt: the whole text, where it is not the prompt of all. either: both to find it in the cache and not to is right.
        """
        question = Question(prompt or self.prompt, identity, -1, _NEW_TOKENS)
        answer = ask(self.subject, [question], carried)[0]
        compared = self.life.judge(question, answer, f"request {len(self.asked) + 1}, ")
        warm = None if either else any(other.who == key for other in self.asked)
        self.asked.append(_Asked(key, warm, answer, compared))
        return answer

    @property
    def told(self) -> list[str]:
        return [f"{a.who}, {_EXPECTED[a.warm]}: {a.answer.cached} tokens found" for a in self.asked]

    def found_of_others(self) -> dict[str, JsonValue]:
        """Who found what, where an identity that had not asked before found anything."""
        found = self._found_of_others()
        return {"says": f"Left in the cache by another identity: {'; '.join(found)}."} if found else {}

    def _found_of_others(self) -> list[str]:
        return [
            f"request {number}: {a.who} found {a.answer.cached} of {len(a.compared.prompts[0]) - _NEW_TOKENS} tokens"
            for number, a in enumerate(self.asked, start=1)
            if a.answer.cached and a.warm is False
        ]

    def measurements(self) -> list[Measurement]:
        """What was found, and how far warm answers are from the cold one of the same identity."""
        found = sum(a.answer.cached for a in self.asked if a.warm is False)
        warm = [a.answer.cached for a in self.asked if a.warm]
        note = "tokens that another identity had left in the cache"
        leaked = limits.exactly_none("cached_tokens_of_others", found, note)
        measured = [leaked.model_copy(update={"where": "; ".join(self._found_of_others())})]
        if warm:
            least = int(_WARM * self.spec.prompt_length)
            measured.append(limits.at_least_count("cached_tokens", min(warm), least, "half of the prompt, asked again"))
        measured += self.life.measurements(self.subject)
        return [*measured, *self._to_cold()]

    def _to_cold(self) -> list[Measurement]:
        differences = []
        for place, one in enumerate(self.asked):
            cold = next(other for other in self.asked[: place + 1] if other.who == one.who)
            if one is not cold and one.answer.text == cold.answer.text:
                differences.append((metrics.max_abs(one.answer.logprobs, cold.answer.logprobs), one.compared))
        if not differences:
            return []
        worst, of = max(differences, key=lambda pair: np.nan_to_num(pair[0], nan=np.inf))
        error = of.largest_error.limit or 0.0
        note = "two permitted errors"
        return [
            limits.context("max_abs_to_cold", worst, "nat", f"judged against the oracle; {note}: {2.0 * error:.2e}")
        ]


def _in_turn(trial: _Trial) -> None:
    """Base, A, B and base again, then all once more, and in the other order."""
    first, second = trial.spec.adapters
    for identity in (None, first, second, None, first, second, None, second, first):
        company = _CARRIED[trial.spec.carried](trial.subject, identity, trial.spec.adapters)
        trial.ask(identity, identity or "base", company)


def _reload(trial: _Trial) -> None:
    """One name with one adapter's weights, then with another's, then with the first again: each finds its own at most."""
    life = trial.life
    shape = trial.spec.adapters[0]
    contents = [Content(shape, 1), Content(shape, 2), Content(shape, 1)]
    for number, content in enumerate(contents, start=1):
        act = Load(_NAME, content) if number == 1 else Reload(_NAME, content)
        life.take(number, Step("load" if number == 1 else "reload", act, ()))
        key = f"{_NAME} with {content.label}"
        trial.ask(_NAME, key, either=number == len(contents))  # the same weights again: both are right
        trial.ask(_NAME, key)
        trial.ask(None, "base")


def _conversation(trial: _Trial) -> None:
    """Turns of a conversation under changing identities; each is sent what is new in it, and the engine knows what was said before.

    No turn may find what a turn of another identity computed.
    """
    engine: Any = trial.subject.engine
    first, second = trial.spec.adapters
    session, said, before = engine.open_session(_CAPACITY), list[int](), None
    for turn, identity in enumerate((first, None, second)):
        new = trial.prompt if turn == 0 else trial.prompt[turn : turn + _TURN]
        whose: Carried = {"session_params": {"id": session, "rid": before}, "input_ids": [[*new]]}
        answer = trial.ask(identity, f"turn {turn} by {identity or 'base'}", whose, [*said, *new])
        said, before = list(answer.text), answer.request
    engine.close_session(session)


def _same(**fields: JsonValue) -> Company:
    return lambda subject, identity, adapters: fields


def _only_base(name: str) -> Company:
    """The base model's requests carry the first adapter's name in a field."""
    return lambda subject, identity, adapters: {} if identity else {name: [adapters[0]]}


def _id_of(subject: SGLangSubject, identity: str | None, adapters: tuple[str, str]) -> Carried:
    """The base model's requests carry the id under which the engine keeps the first adapter."""
    registry: Any = subject.engine.tokenizer_manager.lora_registry
    return {} if identity else {"extra_key": [str(registry._registry[adapters[0]].lora_id)]}


def _priorities(subject: SGLangSubject, identity: str | None, adapters: tuple[str, str]) -> Carried:
    return {"priority": 0 if identity is None else 1 + adapters.index(identity)}


def _expect_salt() -> None:
    from sglang.srt.managers.io_struct import GenerateReqInput

    if "cache_salt" not in signature(GenerateReqInput).parameters:
        raise NotApplicable("this SGLang knows no cache_salt")


_CARRIED: Mapping[str, Company] = {
    "nothing": _same(),
    "extra-key": _same(extra_key=["kit"]),
    "extra-key-of-name": _only_base("extra_key"),
    "extra-key-of-id": _id_of,
    "cache-salt": _only_base("cache_salt"),
    "priority": _priorities,
    "sampling": _same(sampling_params={"top_k": 1, "top_p": 0.5, "frequency_penalty": 0.0}),
    "session-id": _same(session_id="kit"),
}
_PLANS: Mapping[str, Callable[[_Trial], None]] = {"reload": _reload, "conversation": _conversation}
