"""An engine whose answers are kept, with its likeliest tokens at every place: what upstream's rules are about. For self-tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kit.oracles.metrics import Values
from kit.subjects.continued import TOP, largest


@dataclass(frozen=True)
class Heard:
    """One answer of the engine, as it gave it.

    Attributes:
        identity: as it was asked for; None is the base model.
        prompt: n token ids. tokens: the m new ones. asked: how many were wanted.
        logprobs: [n − 1 + m] where those of the prompt were wanted, else [m], nat; NaN where there is none.
        top: [n − 1 + m][`TOP`] or [m][`TOP`], nat, the largest logprobs there, largest first.
        with_prompt: whether those of the whole prompt were wanted.
    """

    identity: str | None
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    asked: int
    logprobs: Values
    top: Values
    with_prompt: bool


class Overheard:
    """Stands in front of an `sglang.Engine`: ``generate`` asks for `TOP` logprobs beside, and keeps what comes back.

    What goes by other ways than ``generate`` is not kept.
    """

    def __init__(self, engine: Any, heard: list[Heard]) -> None:
        self._engine = engine
        self._heard = heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, **asked: Any) -> Any:
        """As the engine's own."""
        if not asked.get("return_logprob"):
            return self._engine.generate(**asked)
        answers = self._engine.generate(**asked | {"top_logprobs_num": TOP})
        prompts = asked["input_ids"]
        identities = asked.get("lora_path") or [None] * len(prompts)
        starts = _of_each(asked.get("logprob_start_len", -1), len(prompts))
        sampling = _of_each(asked["sampling_params"], len(prompts))
        for prompt, identity, start, chosen, answer in zip(prompts, identities, starts, sampling, answers, strict=True):
            self._heard.append(_heard(prompt, identity, start == 0, chosen["max_new_tokens"], answer["meta_info"]))
        return answers


def _of_each(value: Any, count: int) -> Sequence[Any]:
    return value if isinstance(value, list) else [value] * count


def _heard(prompt: Sequence[int], identity: str | None, with_prompt: bool, asked: int, told: dict[str, Any]) -> Heard:
    new = (told["output_token_logprobs"] or [])[:asked]
    top = (told.get("output_top_logprobs") or [])[: len(new)]
    if with_prompt:
        places = len(prompt)
        new_and_old = [*(told["input_token_logprobs"] or [])[1:places], *new]
        top = [*(told.get("input_top_logprobs") or [])[1:places], *top]
    else:
        new_and_old = list(new)
    return Heard(
        identity=identity,
        prompt=tuple(prompt),
        tokens=tuple(int(entry[1]) for entry in new),
        asked=asked,
        logprobs=np.array([np.nan if entry[0] is None else float(entry[0]) for entry in new_and_old]),
        top=np.array([largest(place) for place in top]).reshape(-1, TOP),
        with_prompt=with_prompt,
    )
