"""Known answers that every oracle must give on this machine before it is used.

The values were not computed with the code that they check. The attention case is worked by hand. The Qwen3 case was
derived one scalar at a time in 40-digit arithmetic (tests/unit/oracles/derivation.py), with small fractions as weights.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from kit.oracles import attention, qwen3
from kit.oracles.twice import Array, OracleDisagreement

TOLERANCE = 1e-13
"""Of known answers, relative to their size of 1 to 10: float64 rounds at 1.1e-16."""

QWEN3_TOKENS = (3, 0, 4, 1)
QWEN3_BASE = (-0.58142684337681430911, -4.52267361577117865064, -0.79762479816392776512)
QWEN3_ADAPTED = (-0.45091578784542235379, -1.97216425590161386286, -1.69707235511373427673)

_VOCABULARY, _HIDDEN, _HEADS, _KV_HEADS, _HEAD_DIM, _INTERMEDIATE = 5, 3, 2, 1, 4, 2
_MODULES = {
    "self_attn.q_proj": (_HEADS * _HEAD_DIM, _HIDDEN),
    "self_attn.k_proj": (_KV_HEADS * _HEAD_DIM, _HIDDEN),
    "self_attn.v_proj": (_KV_HEADS * _HEAD_DIM, _HIDDEN),
    "self_attn.o_proj": (_HIDDEN, _HEADS * _HEAD_DIM),
    "mlp.gate_proj": (_INTERMEDIATE, _HIDDEN),
    "mlp.up_proj": (_INTERMEDIATE, _HIDDEN),
    "mlp.down_proj": (_HIDDEN, _INTERMEDIATE),
}


def pattern(rows: int, columns: int, shift: int) -> Array:
    """Entry (i, j) is ((3i + 5j + 2ij + shift) mod 11 − 5) / 4: small fractions without symmetry."""
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    return np.asarray(((3 * i + 5 * j + 2 * i * j + shift) % 11 - 5) / 4.0)


def qwen3_case() -> tuple[qwen3.Qwen3Settings, qwen3.Weights, qwen3.Adapter]:
    """One layer, hidden size 3, two query heads on one KV head of size 4; an adapter of rank 1, scaling 1.625."""
    settings = qwen3.Qwen3Settings(1, _HEADS, _KV_HEADS, _HEAD_DIM, 1e-6, 100.0)
    weights = {
        "model.embed_tokens.weight": pattern(_VOCABULARY, _HIDDEN, 1),
        "lm_head.weight": pattern(_VOCABULARY, _HIDDEN, 2),
        "model.norm.weight": np.array([1.0, 0.75, 1.25]),
        "model.layers.0.input_layernorm.weight": np.array([0.75, 1.25, 1.0]),
        "model.layers.0.post_attention_layernorm.weight": np.array([1.25, 1.0, 0.75]),
        "model.layers.0.self_attn.q_norm.weight": np.array([1.0, 1.25, 0.75, 1.5]),
        "model.layers.0.self_attn.k_norm.weight": np.array([1.25, 0.75, 1.5, 1.0]),
    }
    adapter = {}
    for shift, (module, (outputs, inputs)) in enumerate(_MODULES.items(), start=3):
        name = f"model.layers.0.{module}"
        weights[f"{name}.weight"] = pattern(outputs, inputs, shift)
        adapter[name] = qwen3.LowRank(pattern(1, inputs, shift + 1), pattern(outputs, 1, shift + 2), 1.625)
    return settings, weights, adapter


@cache
def check_qwen3() -> None:
    """Hold the Qwen3 oracle against its known answers, once per process.

    Raises:
        OracleDisagreement: an answer differs.
    """
    settings, weights, adapter = qwen3_case()
    base = qwen3.prompt_logprobs(settings, weights, qwen3.NO_ADAPTER, QWEN3_TOKENS)
    _compare("the known answer of Qwen3", base, QWEN3_BASE)
    adapted = qwen3.prompt_logprobs(settings, weights, adapter, QWEN3_TOKENS)
    _compare("the known answer of Qwen3 with LoRA", adapted, QWEN3_ADAPTED)


@cache
def check_attention() -> None:
    """Hold the attention oracle against an answer worked by hand, once per process.

    Two query heads share one KV head of size 1, scale ½. The cached keys are 2 ln 3 and 0, at slots 2 and 0; slot 1 is
    unused and NaN. For query 1 the scores are ln 3 and 0, the weights ¾ and ¼; for query −1 they are ¼ and ¾. Values
    (8, −4) and (0, 4) give (6, −2) and (2, 2).

    Raises:
        OracleDisagreement: an answer differs.
    """
    query = np.array([[[1.0], [-1.0]]])
    keys = np.array([[[0.0]], [[np.nan]], [[2.0 * np.log(3.0)]]])
    values = np.array([[[0.0, 4.0]], [[np.nan, np.nan]], [[8.0, -4.0]]])
    out = attention.grouped_decode(query, keys, values, [np.array([2, 0])], 0.5)
    _compare("the known answer of attention", out.ravel(), (6.0, -2.0, 2.0, 2.0))


def _compare(what: str, found: Array, known: Sequence[float]) -> None:
    difference = float(np.max(np.abs(found - np.array(known))))
    if not difference <= TOLERANCE * max(1.0, max(abs(value) for value in known)):
        raise OracleDisagreement(what, difference)
