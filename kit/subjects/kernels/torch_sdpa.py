"""torch's own scaled_dot_product_attention: a library that every stack has, and a control of the limits."""

from dataclasses import dataclass, field

import torch

from kit.attention_spec import AttentionSpec
from kit.subjects.kernels.library import Answer, Poison
from kit.subjects.kernels.tensors import Placing
from kit.synthetic.attention import AttentionInputs, new_lengths, requests


@dataclass(frozen=True)
class TorchAttention:
    """``torch.nn.functional.scaled_dot_product_attention``, one call per request, keys and values gathered by torch.

    Its notes on reproducibility promise no equal bits between calls, unless deterministic algorithms are asked for.
    """

    device: str
    facts: dict[str, str] = field(
        default_factory=lambda: {"kernels": "torch.nn.functional.scaled_dot_product_attention"}
    )

    def refuses(self, spec: AttentionSpec) -> str | None:
        """It has neither a cap nor sinks nor a temperature."""
        if spec.logit_cap or spec.sinks or spec.temperature_length is not None:
            return "scaled_dot_product_attention has no logit cap, no sinks and no temperature"
        return None

    def attend(self, spec: AttentionSpec, inputs: AttentionInputs, poison: Poison) -> Answer:
        """Every request in turn, into an output full of poison."""
        placing = Placing(self.device, spec.dtype, poison)
        out = placing.output(sum(new_lengths(spec)), spec.query_heads, spec.value_dim)
        start = 0
        for request in requests(spec, inputs):
            query, keys, values = (
                placing.tensor(array).transpose(0, 1)[None] for array in (request.query, request.keys, request.values)
            )
            mask = torch.from_numpy(request.visible).to(self.device)
            mixed = torch.nn.functional.scaled_dot_product_attention(
                query, keys, values, attn_mask=mask, scale=inputs.scale, enable_gqa=True
            )
            end = start + len(request.query)
            out.rows[start:end] = mixed[0].transpose(0, 1)
            start = end
        name = "torch.scaled_dot_product_attention"
        return Answer(out.values(), out.overwritten(), (name,), (), repeatable=False)
