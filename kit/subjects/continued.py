"""How an engine goes on with prompts, with its likeliest tokens at every place: what a comparison of texts needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kit.oracles.limits import Dtype
from kit.oracles.metrics import Values
from kit.oracles.reference import LogprobOracle
from kit.oracles.triage import Choice
from kit.subjects.transformers_peer import TransformersPeer

TOP = 5
"""How many of the likeliest tokens are asked for: NUM_TOP_LOGPROBS of sglang/test/runners.py."""


@dataclass(frozen=True)
class Continued:
    """m new tokens of one prompt; m is smaller than asked where the engine gave too few.

    Attributes:
        tokens: [m]. logprobs: [m], nat, of these; NaN where the engine gave none.
        top: [m], the likeliest tokens at each place, best first.
        prompt_top: [n][`TOP`], nat, the largest logprobs of what follows tokens 0 … of the prompt; None where not asked for.
    """

    tokens: tuple[int, ...]
    logprobs: Values
    top: tuple[tuple[Choice, ...], ...]
    prompt_top: Values | None = None


class TextSubject(Protocol):
    """What texts are compared on."""

    @property
    def peer(self) -> TransformersPeer:
        """Plain transformers in the subject's dtype."""

    @property
    def oracle(self) -> LogprobOracle | None:
        """None where there is none, as for real models."""

    @property
    def dtype(self) -> Dtype:
        """Of weights and activations."""

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a text."""

    def text(self, tokens: Sequence[int]) -> str:
        """Tokens as text, without white space around it."""


def continued(
    engine: Any,
    prompts: Sequence[Sequence[int]],
    identities: Sequence[str | None] | None,
    new_tokens: int,
    with_prompt: bool = False,
) -> list[Continued]:
    """Greedily, all prompts in one message; `identities` None where the engine serves no adapter. No token ends a text."""
    adapters = {} if identities is None else {"lora_path": list(identities)}
    further = {"logprob_start_len": 0} if with_prompt else {}
    answers = engine.generate(
        input_ids=[list(prompt) for prompt in prompts],
        sampling_params={"max_new_tokens": new_tokens, "temperature": 0.0, "ignore_eos": True},
        return_logprob=True,
        top_logprobs_num=TOP,
        **further,
        **adapters,
    )
    return [_read(answer, new_tokens, with_prompt) for answer in answers]


def _read(answer: dict[str, Any], new_tokens: int, with_prompt: bool) -> Continued:
    told = answer["meta_info"]
    tokens = tuple(int(token) for token in answer["output_ids"][:new_tokens])
    logprobs = np.full(len(tokens), np.nan)
    for place, entry in enumerate(told["output_token_logprobs"][: len(tokens)]):
        logprobs[place] = np.nan if entry[0] is None else float(entry[0])
    top = told["output_top_logprobs"]
    prompt_top = (
        np.array([largest(place) for place in [*told["input_top_logprobs"][1:], top[0]]]) if with_prompt else None
    )
    return Continued(tokens, logprobs, tuple(_choices(place) for place in top[: len(tokens)]), prompt_top)


def _choices(entries: Sequence[Sequence[Any]] | None) -> tuple[Choice, ...]:
    return tuple(Choice(token=int(entry[1]), logprob=float(entry[0])) for entry in entries or ())


def largest(entries: Sequence[Sequence[Any]] | None) -> list[float]:
    """The `TOP` largest logprobs of one place, as SGLang returns them: (logprob, token id, …) each; NaN for what is missing."""
    values = [float(entry[0]) for entry in entries or ()][:TOP]
    return values + [np.nan] * (TOP - len(values))
