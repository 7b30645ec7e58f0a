"""The peer: plain eager transformers in the session's dtype on the session's device. Its error calibrates the limits.

LoRA is added by hooks, not by peft: peft keeps adapters in float32 beside a bfloat16 model, which would make the peer
more precise than the dtype allows. Hooks also let one loaded model serve every identity.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from kit.oracles.limits import Dtype
from kit.oracles.metrics import Values
from kit.oracles.reference import adapter_scaling


class TransformersPeer:
    """Prompt logprobs of one model and its adapters, loaded at the first question.

    Args:
        model: folder of the model. adapters: folder of each adapter, by name.
        dtype: of weights, activations and adapters. device: of torch.
    """

    def __init__(self, model: Path, adapters: dict[str, Path], dtype: Dtype, device: str) -> None:
        self._folder = model
        self._adapters = adapters
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._device = device
        self._known: dict[tuple[str | None, tuple[int, ...]], Values] = {}

    def logprobs(self, prompt: Sequence[int], identity: str | None) -> Values:
        """[n] token ids → [n − 1] logprobs in nat: logits in the dtype, log-softmax in float32 as SGLang does it."""
        key = (identity, tuple(prompt))
        if key not in self._known:
            with torch.inference_mode(), self._adapted(identity):
                tokens = torch.tensor([list(prompt)], device=self._device)
                logits = self._model(input_ids=tokens, use_cache=False).logits[0, :-1]
                logprobs = logits.float().log_softmax(dim=-1).gather(-1, tokens[0, 1:, None])[:, 0]
            self._known[key] = logprobs.double().cpu().numpy().astype(np.float64)
        return self._known[key]

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
    def _adapted(self, identity: str | None) -> Iterator[None]:
        hooks = [] if identity is None else self._hook(self._adapters[identity])
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _hook(self, folder: Path) -> list[Any]:
        scaling = adapter_scaling(folder)
        tensors = {
            name: tensor.to(self._device, self._dtype)
            for name, tensor in load_file(folder / "adapter_model.safetensors").items()
        }

        def low_rank(a: torch.Tensor, b: torch.Tensor) -> Any:
            def add(module: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
                return output + (inputs[0] @ a.T) @ b.T * scaling

            return add

        modules = {name.rsplit(".", 2)[0] for name in tensors}
        return [
            self._model.get_submodule(module.removeprefix("base_model.model.")).register_forward_hook(
                low_rank(tensors[f"{module}.lora_A.weight"], tensors[f"{module}.lora_B.weight"])
            )
            for module in sorted(modules)
        ]
