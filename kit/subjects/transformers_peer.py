"""The peer: plain eager transformers in the session's dtype on the session's device. Its error calibrates the limits.

LoRA is added by hooks, not by peft: peft keeps adapters in float32 beside a bfloat16 model, which would make the peer
more precise than the dtype allows. Hooks also let one loaded model serve every identity.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from kit.oracles.layers import NO_ADAPTER, Adapter, LowRank
from kit.oracles.limits import Dtype
from kit.oracles.metrics import Values
from kit.oracles.peft_meaning import Meaning
from kit.oracles.reference import read_adapter

_Change: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""scaling · B (A x)."""

_OF_EXPERT = re.compile(r"(?P<experts>.+\.experts)\.(?P<own>\d+\.\w+)")


class TransformersPeer:
    """Prompt logprobs and greedy texts of one model and its adapters, loaded at the first question.

    Args:
        model: folder of the model. adapters: folder of each adapter, by name.
        dtype: of weights, activations and adapters. device: of torch.
    """

    def __init__(self, model: Path, adapters: Mapping[str, Path], dtype: Dtype, device: str) -> None:
        self._folder = model
        self._adapters: dict[str | None, Adapter] = {None: NO_ADAPTER}
        self._adapters |= {name: read_adapter(folder) for name, folder in adapters.items()}
        self._weights: dict[str | None, Mapping[str, Values]] = {}
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._device = device
        self._known: dict[tuple[str | None, tuple[int, ...]], Values] = {}
        self._texts: dict[tuple[str | None, tuple[int, ...], int, int], tuple[int, ...]] = {}

    def logprobs(self, prompt: Sequence[int], identity: str | None) -> Values:
        """[n] token ids → [n − 1] logprobs in nat: logits in the dtype, log-softmax in float32 as SGLang does it."""
        key = (identity, tuple(prompt))
        if key not in self._known:
            with self._being(identity):
                tokens = torch.tensor([list(prompt)], device=self._device)
                logits = self._model(input_ids=tokens, use_cache=False).logits[0, :-1]
                logprobs = logits.float().log_softmax(dim=-1).gather(-1, tokens[0, 1:, None])[:, 0]
            self._known[key] = logprobs.double().cpu().numpy().astype(np.float64)
        return self._known[key]

    def greedy(self, prompt: Sequence[int], identity: str | None, new_tokens: int, rows: int = 1) -> tuple[int, ...]:
        """The most likely new tokens, one after another, of the first row of a batch that holds the prompt `rows` times."""
        key = (identity, tuple(prompt), new_tokens, rows)
        if key not in self._texts:
            text: list[int] = []
            with self._being(identity):
                step, cache = torch.tensor([list(prompt)] * rows, device=self._device), None
                for _ in range(new_tokens):
                    out = self._model(input_ids=step, past_key_values=cache, use_cache=True, logits_to_keep=1)
                    step, cache = out.logits[:, -1].argmax(dim=-1, keepdim=True), out.past_key_values
                    text.append(int(step[0, 0]))
            self._texts[key] = tuple(text)
        return self._texts[key]

    def last_logits(self, text: Sequence[int], identity: str | None, keep: int, rows: int = 1) -> Values:
        """Logits of what follows each of the last `keep` tokens, [keep, vocabulary], of the first of `rows` equal rows."""
        with self._being(identity):
            tokens = torch.tensor([list(text)] * rows, device=self._device)
            logits = self._model(input_ids=tokens, use_cache=False, logits_to_keep=keep).logits[0]
        return np.asarray(logits.double().cpu().numpy(), dtype=np.float64)

    def learn(self, name: str, meaning: Meaning) -> None:
        """Answer for one more adapter, under a name that is not known yet."""
        self._adapters[name], self._weights[name] = meaning.adapter, meaning.weights

    @contextmanager
    def _being(self, identity: str | None) -> Iterator[None]:
        """While inside, the model is this identity."""
        replaced = self._replaced(self._weights.get(identity, {}))
        with torch.inference_mode(), replaced, self._adapted(self._adapters[identity]):
            yield

    @cached_property
    def _model(self) -> Any:
        from transformers import AutoModelForCausalLM

        loaded = AutoModelForCausalLM.from_pretrained(
            self._folder,
            dtype=self._dtype,
            attn_implementation="eager",
            experts_implementation="eager",
            local_files_only=True,
        )
        return loaded.to(self._device).eval()

    @contextmanager
    def _replaced(self, weights: Mapping[str, Values]) -> Iterator[None]:
        places = [(self._model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in weights]
        kept = [getattr(module, part) for module, part in places]
        try:
            for (module, part), tensor in zip(places, weights.values(), strict=True):
                setattr(module, part, torch.nn.Parameter(self._own(tensor), requires_grad=False))
            yield
        finally:
            for (module, part), tensor in zip(places, kept, strict=True):
                setattr(module, part, tensor)

    @contextmanager
    def _adapted(self, adapter: Adapter) -> Iterator[None]:
        experts: dict[str, dict[str, _Change]] = {}
        with ExitStack() as adapted:
            for name, low in adapter.items():
                if of_expert := _OF_EXPERT.fullmatch(name):
                    experts.setdefault(of_expert["experts"], {})[of_expert["own"]] = self._change(low)
                    continue
                module = self._model.get_submodule(name)
                change = self._embedding_change(low) if isinstance(module, torch.nn.Embedding) else self._change(low)
                adapted.callback(module.register_forward_hook(partial(_add, change)).remove)
            for name, changes in experts.items():
                module = self._model.get_submodule(name)
                module.forward = partial(_experts, module, changes)
                adapted.callback(delattr, module, "forward")  # the class's own is in force again
            yield

    def _change(self, low: LowRank) -> _Change:
        a, b = self._own(low.a), self._own(low.b)
        return lambda x: (x @ a.T) @ b.T * low.scaling

    def _embedding_change(self, low: LowRank) -> _Change:
        a, b = self._own(low.a), self._own(low.b)
        return lambda tokens: a[:, tokens].movedim(0, -1) @ b.T * low.scaling

    def _own(self, tensor: Values) -> torch.Tensor:
        return torch.tensor(tensor).to(self._device, self._dtype)


def _add(change: _Change, module: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
    return output + change(inputs[0])


def _experts(
    module: Any, changes: Mapping[str, _Change], x: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor
) -> torch.Tensor:
    """GPT-OSS's experts with LoRA: [n, d] → [n, d]; `chosen` and `shares` are [n, experts per token].

    transformers computes an expert in one go, so this is its forward pass with the changes where they belong: on gate
    and up, which are interleaved, before the activation, and on the output.
    """
    out = torch.zeros_like(x)
    for expert in range(module.num_experts):
        rows, places = torch.where(chosen == expert)
        own = x[rows]
        both = own @ module.gate_up_proj[expert] + module.gate_up_proj_bias[expert]
        for offset, part in enumerate(("gate_proj", "up_proj")):
            if change := changes.get(f"{expert}.{part}"):
                both[:, offset::2] += change(own)
        inner = module._apply_gate(both)
        y = inner @ module.down_proj[expert] + module.down_proj_bias[expert]
        if change := changes.get(f"{expert}.down_proj"):
            y = y + change(inner)
        out.index_add_(0, rows, y * shares[rows, places, None])
    return out
