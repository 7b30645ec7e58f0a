"""Known answers that every oracle must give on this machine before it is used.

The values were not computed with the code that they check. Those of attention (`kit.oracles.canary_attention`) are
worked by hand. The decoder cases were derived one scalar at a time in 40-digit arithmetic
(tests/unit/oracles/derivation.py), with small fractions as weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from kit.oracles.decoder import DecoderSettings, prompt_logprobs
from kit.oracles.experts import ExpertSettings
from kit.oracles.layers import NO_ADAPTER, Adapter, LowRank, Weights
from kit.oracles.rope import Rope
from kit.oracles.twice import Array, OracleDisagreement

TOLERANCE = 1e-13
"""Of known answers, relative to their size of 1 to 20: float64 rounds at 1.1e-16."""

TOKENS = (3, 0, 4, 1, 2)

_VOCABULARY, _HIDDEN, _HEADS, _KV_HEADS, _HEAD_DIM, _INTERMEDIATE, _EXPERTS = 5, 3, 2, 1, 4, 2, 3
_SCALING = 1.625


@dataclass(frozen=True)
class Canary:
    """A family's settings on the smallest shape that has all its parts, with its answers for `TOKENS`, nat.

    Attributes:
        base, adapted: [4] log-probabilities of tokens 1 … 4 without and with the adapter.
    """

    settings: DecoderSettings
    base: tuple[float, ...]
    adapted: tuple[float, ...]


def _settings(rope: Rope, windows: tuple[int | None, ...], experts: ExpertSettings | None = None) -> DecoderSettings:
    return DecoderSettings(_HEADS, _KV_HEADS, _HEAD_DIM, 1e-6, rope, windows, experts)


CANARIES = {
    "qwen3": Canary(
        settings=_settings(Rope("default", 100.0), (None,)),
        base=(-0.56596119536452370529, -3.57410930703271059634, -1.05745010232032081722, -3.42372019280466506891),
        adapted=(-1.91369788222849655276, -1.31434461566647035222, -4.31820192259939682187, -1.43171021415623492280),
    ),
    "llama": Canary(
        settings=_settings(Rope("llama3", 100.0, factor=4.0, original_max_position_embeddings=16), (None,)),
        base=(-4.11791659936461523147, -1.07262823337908575950, -1.56591506149405612875, -4.91198656418163622584),
        adapted=(-1.31972369209862360408, -0.98805218824643623190, -0.56969831204857673069, -1.84419048511675496654),
    ),
    "gpt_oss": Canary(
        settings=_settings(
            Rope(
                "yarn",
                100.0,
                factor=4.0,
                original_max_position_embeddings=16,
                beta_fast=2.0,
                beta_slow=0.2,
                truncate=False,
            ),
            windows=(2, None),
            experts=ExpertSettings(num_experts_per_tok=2, swiglu_limit=3.0),
        ),
        base=(-2.36654151583297673605, -0.98056565264611091231, -0.55035828776678880070, -4.04275719727238238549),
        adapted=(-2.29849776792394259269, -8.28957468636048121241, -5.93081222033166348944, -4.89764880716096676959),
    ),
}


def pattern(rows: int, columns: int, shift: int) -> Array:
    """Entry (i, j) is ((3i + 5j + 2ij + shift) mod 11 − 5) / 4: small fractions without symmetry."""
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    return np.asarray(((3 * i + 5 * j + 2 * i * j + shift) % 11 - 5) / 4.0)


def canary_weights(family: str) -> tuple[Weights, Adapter]:
    """Tensor number s, in the order of the names, is `pattern` with shift s; slice e of three dimensions with s + e.

    Norms are 1 + pattern / 8. A of rank 1 of adapted module number s has shift s, its B shift s + 1.
    """
    weights = {}
    for shift, (name, shape) in enumerate(sorted(_shapes(family).items())):
        flat = shape if len(shape) > 1 else (1, *shape)
        slices = [pattern(flat[-2], flat[-1], shift + place) for place in range(flat[0] if len(flat) == 3 else 1)]
        tensor = np.array(slices).reshape(shape)
        weights[name] = 1.0 + tensor / 8.0 if "norm" in name else tensor
    adapter = {
        name: LowRank(pattern(1, inputs, shift), pattern(outputs, 1, shift + 1), _SCALING)
        for shift, (name, (outputs, inputs)) in enumerate(sorted(_adapted(family).items()))
    }
    return weights, adapter


@cache
def check_decoders() -> None:
    """Hold the decoder oracle against its known answers in every family, once per process.

    Raises:
        OracleDisagreement: an answer differs.
    """
    for family, known in CANARIES.items():
        weights, adapter = canary_weights(family)
        base = prompt_logprobs(known.settings, weights, NO_ADAPTER, TOKENS)
        compare(family, base, known.base)
        adapted = prompt_logprobs(known.settings, weights, adapter, TOKENS)
        compare(f"{family} with LoRA", adapted, known.adapted)


def _shapes(family: str) -> Mapping[str, tuple[int, ...]]:
    """Shape of every tensor of a family's canary."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (_VOCABULARY, _HIDDEN),
        "lm_head.weight": (_VOCABULARY, _HIDDEN),
        "model.norm.weight": (_HIDDEN,),
    }
    for layer in _layers(family):
        for module, shape in _linear(family).items():
            shapes[f"{layer}.{module}.weight"] = shape
            if family == "gpt_oss":
                shapes[f"{layer}.{module}.bias"] = shape[:1]
        shapes |= {f"{layer}.{norm}.weight": (_HIDDEN,) for norm in ("input_layernorm", "post_attention_layernorm")}
        if family == "qwen3":
            shapes |= {f"{layer}.self_attn.{norm}.weight": (_HEAD_DIM,) for norm in ("q_norm", "k_norm")}
        if family == "gpt_oss":
            both, down = f"{layer}.mlp.experts.gate_up_proj", f"{layer}.mlp.experts.down_proj"
            shapes |= {
                f"{layer}.self_attn.sinks": (_HEADS,),
                f"{layer}.mlp.router.weight": (_EXPERTS, _HIDDEN),
                f"{layer}.mlp.router.bias": (_EXPERTS,),
                both: (_EXPERTS, _HIDDEN, 2 * _INTERMEDIATE),
                f"{both}_bias": (_EXPERTS, 2 * _INTERMEDIATE),
                down: (_EXPERTS, _INTERMEDIATE, _HIDDEN),
                f"{down}_bias": (_EXPERTS, _HIDDEN),
            }
    return shapes


def _adapted(family: str) -> Mapping[str, tuple[int, int]]:
    """Outputs and inputs of every adapted module: all that are linear, the experts' too, embeddings and head."""
    modules = {"model.embed_tokens": (_HIDDEN, _VOCABULARY), "lm_head": (_VOCABULARY, _HIDDEN)}
    for layer in _layers(family):
        modules |= {f"{layer}.{module}": shape for module, shape in _linear(family).items()}
        if family == "gpt_oss":
            for expert in (f"{layer}.mlp.experts.{place}" for place in range(_EXPERTS)):
                modules |= {f"{expert}.{part}": (_INTERMEDIATE, _HIDDEN) for part in ("gate_proj", "up_proj")}
                modules |= {f"{expert}.down_proj": (_HIDDEN, _INTERMEDIATE)}
    return modules


def _layers(family: str) -> Iterator[str]:
    return (f"model.layers.{layer}" for layer in range(len(CANARIES[family].settings.windows)))


def _linear(family: str) -> Mapping[str, tuple[int, int]]:
    modules = {
        "self_attn.q_proj": (_HEADS * _HEAD_DIM, _HIDDEN),
        "self_attn.k_proj": (_KV_HEADS * _HEAD_DIM, _HIDDEN),
        "self_attn.v_proj": (_KV_HEADS * _HEAD_DIM, _HIDDEN),
        "self_attn.o_proj": (_HIDDEN, _HEADS * _HEAD_DIM),
    }
    if family != "gpt_oss":
        modules |= {f"mlp.{part}": (_INTERMEDIATE, _HIDDEN) for part in ("gate_proj", "up_proj")}
        modules |= {"mlp.down_proj": (_HIDDEN, _INTERMEDIATE)}
    return modules


def compare(what: str, found: Array, known: Sequence[float]) -> None:
    """Hold a value against its known answer.

    Raises:
        OracleDisagreement: they differ.
    """
    difference = float(np.max(np.abs(found - np.array(known))))
    if not difference <= TOLERANCE * max(1.0, max(abs(value) for value in known)):
        raise OracleDisagreement(f"the known answer of {what}", difference)
