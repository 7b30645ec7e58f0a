"""SGLang as a subject: one `sglang.Engine` on a synthetic model with its adapters.

Covers SGLang 0.5.17 and 0.5.19, whose offline engines agree in all that is used here.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from pydantic import JsonValue

from kit.faults.apply import served_adapters, served_logprobs
from kit.faults.engine_plugin import EnginePlugin, install_plugin, needs_plugin
from kit.oracles.limits import Dtype
from kit.oracles.metrics import Values
from kit.oracles.reference import LogprobOracle
from kit.plan import ProcessSpec, SGLangSession
from kit.subjects.continued import Continued, continued
from kit.subjects.device import device_facts, versions
from kit.subjects.engine_life import EngineLife
from kit.subjects.overheard import Heard, Overheard
from kit.subjects.session_adapters import original_adapters
from kit.subjects.transformers_peer import TransformersPeer
from kit.subjects.workspace import Workspace
from kit.synthetic.catalogue import find_model, model_folder
from kit.synthetic.prompts import prompts as seeded_prompts

_MOST_TOKENS = 16384
_MOST_REQUESTS = 64
_PACKAGES = ("sglang", "sglang-kernel", "sgl-kernel", "torch", "triton", "transformers", "flashinfer-python", "numpy")


@dataclass(frozen=True)
class Served:
    """The engine's answer for one prompt of n tokens.

    Attributes:
        logprobs: [n − 1], nat, of tokens 1 … n − 1; NaN where the engine gave none.
        tokens: the token ids that the engine says these belong to.
    """

    logprobs: Values
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Generated(Served):
    """The engine's answer to a request for m new tokens.

    Attributes:
        logprobs: [m], nat, of the new tokens; NaN where the engine gave none. m is smaller where it gave too few.
        tokens: the new tokens.
        cached: how many tokens of the prompt it took from its cache.
    """

    cached: int


@dataclass(frozen=True)
class Whole(Served):
    """The engine's answer to a request for the logprobs of a prompt of n tokens and for m new tokens.

    Attributes:
        logprobs: [n − 1 + m], nat, of tokens 1 … n − 1 of the prompt and of the new ones; NaN where the engine gave none.
        tokens: the token ids that the engine says these belong to; there are less of them where it gave too few new ones.
    """


Answer = TypeVar("Answer", bound=Served)
_Question: TypeAlias = tuple[tuple[str | None, ...], tuple[tuple[int, ...], ...], int]


@dataclass(frozen=True)
class SGLangSubject:
    """A running engine, with the oracle and the peer of what it serves.

    Attributes:
        life: of the engine. facts: versions, device, settings, stand-ins, faults.
        plugin: with which faults act inside the engine; None where there is none.
        heard: where a self-test keeps all answers of ``generate``; None where they are not kept.
        edition: of the adapters: 0 for those of the catalogue, else drawn anew (`kit.subjects.session_adapters`).
    """

    session: SGLangSession
    workspace: Workspace
    life: EngineLife
    facts: dict[str, str]
    plugin: EnginePlugin | None = None
    heard: list[Heard] | None = None
    edition: int = 0
    _first_whole: dict[tuple[str | None, tuple[int, ...], int], Whole] = field(default_factory=dict)
    _first_answers: dict[tuple[str | None, tuple[int, ...]], Served] = field(default_factory=dict)
    _texts: dict[_Question, list[Continued]] = field(default_factory=dict)

    @property
    def engine(self) -> Any:
        """The living `sglang.Engine`."""
        return self.life.engine if self.heard is None else Overheard(self.life.engine, self.heard)

    @property
    def explains(self) -> bool:
        """Whether a red case looks for what its values are like, which takes seconds; not in a self-test, which knows the fault."""
        return self.heard is None

    @property
    def vocabulary(self) -> int:
        """Token ids of prompts are below this. The last id is left out: SGLang reports it as 0.

        Its `LogprobResultProcessor` clips ids that are not below vocab_size − 1, meant for padding of images.
        """
        return find_model(self.session.model).vocabulary - 1

    @cached_property
    def oracle(self) -> LogprobOracle:
        """Reads the original files, never what a fault gave the engine."""
        return LogprobOracle(self._model, self._adapters)

    @cached_property
    def peer(self) -> TransformersPeer:
        """Reads the original files, in the session's dtype on its device."""
        return TransformersPeer(self._model, self._adapters, self.session.dtype, _device(self.session))

    def alone(self, prompts: Sequence[Sequence[int]], identity: str | None) -> list[Served]:
        """Every prompt in a request of its own, one after another; `identity` None is the base model."""
        return [self.together([prompt], [identity])[0] for prompt in prompts]

    def at_first(self, prompts: Sequence[Sequence[int]], identity: str | None) -> list[Served]:
        """As `alone`, and each answer is the one that the first such question got: to compare with, not to judge."""
        answers = []
        for prompt in prompts:
            key = (identity, tuple(prompt))
            if key not in self._first_answers:
                self._first_answers[key] = self.alone([prompt], identity)[0]
            answers.append(self._first_answers[key])
        return answers

    def together(self, prompts: Sequence[Sequence[int]], identities: Sequence[str | None]) -> list[Served]:
        """All prompts in one request, which SGLang sends as one message, so they meet in one prefill batch."""
        return [self._passed_on(a) for a in prompt_logprobs(self.engine, prompts, self._known(identities))]

    def generate(
        self, prompts: Sequence[Sequence[int]], identities: Sequence[str | None], new_tokens: int
    ) -> list[Generated]:
        """The most likely next tokens of every prompt, all in one request; `identity` None is the base model."""
        return [self._passed_on(a) for a in generate(self.engine, prompts, self._known(identities), new_tokens)]

    def continued(
        self, prompts: Sequence[Sequence[int]], identities: Sequence[str | None], new_tokens: int
    ) -> list[Continued]:
        """As `generate`, with the likeliest tokens at every place; the same question again gets the first answer."""
        key = (tuple(identities), tuple(map(tuple, prompts)), new_tokens)
        if key not in self._texts:
            answers = continued(self.engine, prompts, self._known(identities), new_tokens)
            faults = self.workspace.faults
            self._texts[key] = [replace(a, logprobs=served_logprobs(faults, a.logprobs)) for a in answers]
        return self._texts[key]

    @property
    def dtype(self) -> Dtype:
        """Of weights and activations."""
        return self.session.dtype

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a text: a synthetic model has none."""
        return frozenset()

    def text(self, tokens: Sequence[int]) -> str:
        """A synthetic model has no tokenizer, so its text is the token ids with spaces between."""
        return " ".join(map(str, tokens))

    def whole(
        self, prompts: Sequence[Sequence[int]], identities: Sequence[str | None], new_tokens: Sequence[int]
    ) -> list[Whole]:
        """Logprobs of every prompt and of its most likely continuation, whose length is each row's own; all in one request."""
        return [self._passed_on(a) for a in whole(self.engine, prompts, self._known(identities), new_tokens)]

    def whole_at_first(self, prompt: Sequence[int], identity: str | None, new_tokens: int) -> Whole:
        """One prompt as in `whole`, in a request of its own: the answer that the first such question got."""
        key = (identity, tuple(prompt), new_tokens)
        if key not in self._first_whole:
            (self._first_whole[key],) = self.whole([prompt], [identity], [new_tokens])
        return self._first_whole[key]

    def _passed_on(self, answer: Answer) -> Answer:
        """An answer as the checks see it: as the engine gave it, unless a fault alters it."""
        return replace(answer, logprobs=served_logprobs(self.workspace.faults, answer.logprobs))

    def _known(self, identities: Sequence[str | None]) -> Sequence[str | None] | None:
        return identities if self.session.adapters else None

    @property
    def _model(self) -> Path:
        return self.workspace.assets / model_folder(self.session.model)

    def adapter_folder(self, name: str) -> Path:
        """Where the original files of an adapter lie."""
        return self._adapters[name]

    @property
    def _adapters(self) -> dict[str, Path]:
        return original_adapters(self.session, self.workspace, self.edition)


def prompt_logprobs(
    engine: Any, prompts: Sequence[Sequence[int]], identities: Sequence[str | None] | None
) -> list[Served]:
    """What an engine says of prompts that it is sent in one message; `identities` None where it serves no adapter.

    The settings are those of SGLang's test_lora_*_logprob_diff.py.
    """
    answers = _request(engine, prompts, identities, _greedy(0), logprob_start_len=0)
    return [
        read_answer(a["meta_info"]["input_token_logprobs"][1:], len(p) - 1)
        for a, p in zip(answers, prompts, strict=True)
    ]


def generate(
    engine: Any, prompts: Sequence[Sequence[int]], identities: Sequence[str | None] | None, new_tokens: int
) -> list[Generated]:
    """How an engine goes on with prompts that it is sent in one message, greedily; `identities` as in `prompt_logprobs`."""
    answers = _request(engine, prompts, identities, _greedy(new_tokens))
    return [_generated(answer["meta_info"], new_tokens) for answer in answers]


def whole(
    engine: Any,
    prompts: Sequence[Sequence[int]],
    identities: Sequence[str | None] | None,
    new_tokens: Sequence[int],
) -> list[Whole]:
    """What an engine says of prompts in one message, and how it goes on with each, greedily; as in `prompt_logprobs`."""
    answers = _request(engine, prompts, identities, [_greedy(count) for count in new_tokens], logprob_start_len=0)
    return [_whole(a["meta_info"], len(p), new) for a, p, new in zip(answers, prompts, new_tokens, strict=True)]


def _whole(told: dict[str, Any], length: int, new_tokens: int) -> Whole:
    asked = read_answer(told["input_token_logprobs"][1:], length - 1)
    added = _generated(told, new_tokens)
    return Whole(np.concatenate([asked.logprobs, added.logprobs]), (*asked.tokens, *added.tokens))


def _greedy(new_tokens: int) -> dict[str, Any]:
    return {"max_new_tokens": new_tokens, "temperature": 0.0, "ignore_eos": True}


def _request(
    engine: Any,
    prompts: Sequence[Sequence[int]],
    identities: Sequence[str | None] | None,
    sampling: dict[str, Any] | list[dict[str, Any]],
    **further: int,
) -> list[dict[str, Any]]:
    adapters = {} if identities is None else {"lora_path": list(identities)}
    answers: list[dict[str, Any]] = engine.generate(
        input_ids=[list(prompt) for prompt in prompts],
        sampling_params=sampling,
        return_logprob=True,
        **further,
        **adapters,
    )
    return answers


def read_answer(entries: Sequence[Sequence[Any]], length: int) -> Served:
    """What SGLang returned for `length` tokens: (logprob or None, token id, …) each.

    An answer of the wrong length gets NaN and −1 for what is missing, and loses what is too much.
    """
    values, tokens = np.full(length, np.nan), [-1] * length
    for place, entry in enumerate(entries[:length]):
        values[place] = np.nan if entry[0] is None else float(entry[0])
        tokens[place] = int(entry[1])
    return Served(logprobs=values, tokens=tuple(tokens))


def _generated(told: dict[str, Any], new_tokens: int) -> Generated:
    entries = told["output_token_logprobs"]
    served = read_answer(entries, min(len(entries), new_tokens))
    return Generated(served.logprobs, served.tokens, cached=int(told["cached_tokens"]))


def served_model(session: SGLangSession, original: Path, scratch: Path) -> Path:
    """The model's folder as the engine is given it: the original, or one whose config.json declares the session's dtype.

    SGLang takes the dtype of GPT-OSS's attention and router from config.json alone (docs/findings/0030); a published
    checkpoint declares the dtype that it is served in. The weights are the original file, which every dtype here holds exactly.
    """
    if find_model(session.model).family != "gpt_oss":
        return original
    folder = scratch / f"{original.name}-{session.dtype}"
    folder.mkdir(exist_ok=True)
    config = json.loads((original / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": session.dtype}))
    (folder / "model.safetensors").symlink_to(original / "model.safetensors")
    return folder


def engine_arguments(session: SGLangSession, model: Path, adapters: dict[str, Path]) -> dict[str, Any]:
    """Keyword arguments of `sglang.Engine`; what the session says wins.

    No radix cache and no chunks: each prompt is computed in full, as its oracle is.
    """
    shape = find_model(session.model)
    arguments: dict[str, JsonValue] = {
        "model_path": str(model),
        "skip_tokenizer_init": True,
        "dtype": session.dtype,
        "context_length": shape.positions,
        "random_seed": 0,
        "disable_radix_cache": True,
        "chunked_prefill_size": -1,
        "max_total_tokens": _MOST_TOKENS,
        "max_running_requests": _MOST_REQUESTS,
        "sleep_on_idle": True,
        "log_level": "info",
    }
    if adapters:
        arguments |= {
            "enable_lora": True,
            "lora_paths": [f"{name}={folder}" for name, folder in adapters.items()],
            "max_loras_per_batch": len(adapters) + 1,
        }
    return arguments | session.engine


@contextmanager
def open_sglang(session: SGLangSession, workspace: Workspace, stand_ins: dict[str, str]) -> Iterator[SGLangSubject]:
    """A warm engine. If one of its processes dies, this process ends at once (`kit.subjects.engine_life`).

    Raises:
        EnvironmentFault: no device, or a fault that the engine did not load. UsageFault: an unknown model, adapter or fault.
    """
    originals = original_adapters(session, workspace)
    model = served_model(session, workspace.assets / model_folder(session.model), workspace.scratch)
    arguments = engine_arguments(session, model, served_adapters(workspace.faults, originals, workspace.scratch))
    hooked = workspace.switched or needs_plugin(workspace.faults)
    plugin = install_plugin(workspace.faults, workspace.scratch) if hooked else None
    device = device_facts(_device(session))
    with EngineLife(arguments, lambda engine: _warm_up(engine, session)) as life:
        if plugin:
            plugin.confirm(schedulers=int(arguments.get("tp_size", 1)))
        facts = _facts(session, workspace, arguments, device | stand_ins)
        yield SGLangSubject(session, workspace, life, facts, plugin, heard=[] if workspace.switched else None)


def _warm_up(engine: Any, session: SGLangSession) -> None:
    """Compile what the first requests need, so that it counts as start and not as the first case."""
    identities = [None, *session.adapters]
    prompts = seeded_prompts([4] * len(identities), find_model(session.model).vocabulary - 1, seed=0)
    prompt_logprobs(engine, prompts, identities if session.adapters else None)


def _device(session: SGLangSession) -> str:
    return device_of(session.engine)


def device_of(engine: dict[str, JsonValue]) -> str:
    """The device that an engine's arguments name."""
    return str(engine.get("device") or "cuda")


def _facts(
    session: SGLangSession, workspace: Workspace, arguments: dict[str, Any], device: dict[str, str]
) -> dict[str, str]:
    told = {
        "model": session.model,
        "dtype": session.dtype,
        "peer": "transformers, eager attention, same dtype and device",
    }
    return told | engine_facts(session, workspace, arguments) | device


def engine_facts(session: ProcessSpec, workspace: Workspace, arguments: dict[str, Any]) -> dict[str, str]:
    """Versions, arguments, environment and faults, without paths of this machine."""
    told = json.dumps(arguments, sort_keys=True)
    for folder, name in ((workspace.assets, "assets"), (workspace.scratch, "scratch"), (workspace.pinned, "pinned")):
        told = told if folder is None else told.replace(str(folder), name)
    facts = versions(_PACKAGES) | {"engine": told}
    facts |= {f"environment.{name}": value for name, value in session.environment.items()}
    return facts | {f"fault.{fault.name}": f"{fault.strength:g}" for fault in workspace.faults}
