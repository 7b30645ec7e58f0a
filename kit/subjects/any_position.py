"""Requests whose logprobs are wanted from any position on, and that carry whatever SGLang takes beside the prompt."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import JsonValue

from kit.faults.apply import served_logprobs
from kit.subjects.adapter_loading import Reply, told, updated
from kit.subjects.sglang_engine import Served, SGLangSubject, read_answer

NOTHING: Mapping[str, JsonValue] = MappingProxyType({})

_HEAD_START = 0.05
"""Seconds that a request has before an adapter is loaded beside it: a fraction of what it takes."""


@dataclass(frozen=True)
class Question:
    """A request: a prompt of n tokens, and the identity that is to go on with it.

    Attributes:
        start: SGLang's ``logprob_start_len``: logprobs of the prompt are wanted from the token after this one on; −1 for none.
        new_tokens: how many tokens are to be generated, at least 1.
    """

    prompt: Sequence[int]
    identity: str | None
    start: int = 0
    new_tokens: int = 2

    @property
    def first(self) -> int:
        """Place of the first token of the text that is answered for, at least 1."""
        return len(self.prompt) if self.start < 0 else self.start + 1


@dataclass(frozen=True)
class Text(Served):
    """The answer to a `Question`.

    Attributes:
        logprobs: [n − first + m], nat, of the prompt's tokens from `first` on and of the m generated ones; NaN where none was given.
        tokens: the token ids that the engine says these belong to. text: the prompt and what was generated.
        missing: new tokens that were asked for and not given. cached: how many tokens of the prompt came from the cache.
        request: the id that the engine gave the request.
    """

    text: tuple[int, ...]
    missing: int
    cached: int
    request: str


def ask(
    subject: SGLangSubject, questions: Sequence[Question], carried: Mapping[str, JsonValue] = NOTHING
) -> list[Text]:
    """Answers to questions that are sent in one message, so that they meet in one batch.

    Args:
        carried: further fields of SGLang's ``GenerateReqInput``, such as ``extra_key``; ``sampling_params`` are laid over greedy ones.
    Raises:
        Exception: whatever SGLang raises where it refuses one of them.
    """
    request = _request(questions, carried)
    answers = (_by_entry if request.keys() & _ONLY_BY_ENTRY else _by_generate)(subject.engine, request)
    return [_text(subject, question, answer["meta_info"]) for question, answer in zip(questions, answers, strict=True)]


def _request(questions: Sequence[Question], carried: Mapping[str, JsonValue]) -> dict[str, Any]:
    further = dict(carried)
    sampling = further.pop("sampling_params", None) or {}
    assert isinstance(sampling, dict)
    return {
        "input_ids": [list(question.prompt) for question in questions],
        "sampling_params": [
            {"max_new_tokens": question.new_tokens, "temperature": 0.0, "ignore_eos": True, **sampling}
            for question in questions
        ],
        "return_logprob": True,
        "logprob_start_len": [question.start for question in questions],
        "lora_path": [question.identity for question in questions],
        **further,
    }


_ONLY_BY_ENTRY = {"extra_key", "cache_salt"}
"""Fields that a server passes on, and ``Engine.generate`` of one version or another does not."""


def _by_generate(engine: Any, request: dict[str, Any]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = engine.generate(**request)
    return answers


def _by_entry(engine: Any, request: dict[str, Any]) -> list[dict[str, Any]]:
    """As SGLang's HTTP server asks."""
    from sglang.srt.managers.io_struct import GenerateReqInput

    async def answered() -> Any:
        return await anext(engine.tokenizer_manager.generate_request(GenerateReqInput(**request), None))

    answers: list[dict[str, Any]] = engine.loop.run_until_complete(answered())
    return answers


def _text(subject: SGLangSubject, question: Question, answered: Mapping[str, Any]) -> Text:
    """The first entry of the prompt's logprobs is that of token `start`, which has none; then come those that are wanted."""
    asked, given = len(question.prompt) - question.first, answered["output_token_logprobs"]
    own = read_answer((answered["input_token_logprobs"] or [])[1:], asked)
    added = read_answer(given, min(len(given), question.new_tokens))
    values = np.concatenate([own.logprobs, added.logprobs])
    return Text(
        logprobs=served_logprobs(subject.workspace.faults, values),
        tokens=(*own.tokens, *added.tokens),
        text=(*question.prompt, *added.tokens),
        missing=question.new_tokens - len(added.tokens),
        cached=int(answered["cached_tokens"]),
        request=str(answered["id"]),
    )


@dataclass(frozen=True)
class Flight:
    """What came of a load beside a request in flight.

    Attributes:
        other: the answer to the request in flight. own: to the first request of the adapter, sent at once after the load.
        was_in_flight: whether the other was still unanswered when the first request was sent.
        refusal: why a request failed; None where none did, else there are no answers.
    """

    loading: Reply
    was_in_flight: bool = False
    refusal: str | None = None
    answers: tuple[Text, Text] | None = None

    @property
    def other(self) -> Text:
        assert self.answers is not None
        return self.answers[0]

    @property
    def own(self) -> Text:
        assert self.answers is not None
        return self.answers[1]


def load_in_flight(subject: SGLangSubject, name: str, folder: Path, other: Question, own: Question) -> Flight:
    """Send `other`, load an adapter while it is generated, and ask `own` of the adapter as soon as it is loaded."""
    return subject.engine.loop.run_until_complete(_in_flight(subject, name, folder, other, own))  # type: ignore[no-any-return]


async def _in_flight(subject: SGLangSubject, name: str, folder: Path, other: Question, own: Question) -> Flight:
    engine = subject.engine
    long = asyncio.ensure_future(engine.async_generate(**_request([other], NOTHING)))
    await asyncio.sleep(_HEAD_START)
    loading = updated(await engine.async_load_lora_adapter(name, str(folder)))
    in_flight = not long.done()
    if not loading.accepted:
        await asyncio.wait([long])
        return Flight(loading)
    try:
        first = await engine.async_generate(**_request([own], NOTHING))
        (there,) = await long
    except Exception as error:
        return Flight(loading, in_flight, told(error))
    answers = _text(subject, other, there["meta_info"]), _text(subject, own, first[0]["meta_info"])
    return Flight(loading, in_flight, answers=answers)
