import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode, Prefill
from kit.oracles.attention import Scoring, attend
from kit.oracles.twice import OracleDisagreement
from kit.synthetic.attention import Request, attention_inputs, requests

SIZES = {"query_heads": 6, "kv_heads": 2, "head_dim": 8, "value_dim": 5}
DECODE = GroupedDecode(**SIZES, lengths=(7, 4))
SPECS = (
    DECODE,
    GroupedDecode(**SIZES, lengths=(9, 1), window=3, sinks=True, logit_cap=2.0, content="large"),
    Extend(**SIZES, prefixes=(5, 0), lengths=(3, 6), temperature_length=4, content="large"),
    Extend(**SIZES, prefixes=(5, 0), lengths=(3, 6), window=2, tree_mask=True, sinks=True),
    Extend(**SIZES, prefixes=(2,), lengths=(4,), causal=False),
    Prefill(**{**SIZES, "value_dim": 8}, lengths=(3, 5)),
)


def asked(spec: AttentionSpec) -> tuple[list[Request], Scoring]:
    inputs = attention_inputs(spec)
    return list(requests(spec, inputs)), Scoring(inputs.scale, spec.logit_cap, inputs.sinks, spec.temperature_length)


def one_by_one(parts: list[Request], scoring: Scoring) -> list:
    """The definition, one scalar at a time."""
    out = []
    for query, keys, values, visible, positions in parts:
        for row, vector in enumerate(query):
            heads = []
            for head in range(len(vector)):
                kv = head // (len(vector) // keys.shape[1])
                weights = {}
                for token in range(len(keys)):
                    if not visible[row, token]:
                        continue
                    score = scoring.scale * math.fsum(
                        float(a) * float(b) for a, b in zip(vector[head], keys[token, kv], strict=True)
                    )
                    if scoring.logit_cap:
                        score = scoring.logit_cap * math.tanh(score / scoring.logit_cap)
                    if scoring.temperature_length and positions[row] > scoring.temperature_length:
                        score *= math.log(positions[row], scoring.temperature_length)
                    weights[token] = math.exp(score)
                total = math.fsum(weights.values()) + (
                    math.exp(scoring.sinks[head]) if scoring.sinks is not None else 0.0
                )
                heads.append(
                    [
                        math.fsum(w * float(values[t, kv, d]) for t, w in weights.items()) / total
                        for d in range(values.shape[2])
                    ]
                )
            out.append(heads)
    return out


@pytest.mark.parametrize("spec", SPECS)
def test_it_is_the_definition(spec: AttentionSpec) -> None:
    arguments = asked(spec)
    np.testing.assert_allclose(attend(*arguments), one_by_one(*arguments), rtol=0, atol=1e-12)


def test_equal_keys_give_the_mean_of_the_values() -> None:
    parts, scoring = asked(DECODE.model_copy(update={"content": "equal"}))
    np.testing.assert_allclose(attend(parts, scoring)[1, 4], parts[1].values[:, 1].mean(axis=0), rtol=0, atol=1e-14)


def test_large_scores_do_not_overflow() -> None:
    parts, scoring = asked(DECODE)
    assert np.all(np.isfinite(attend([p._replace(query=p.query * 1e4) for p in parts], scoring)))


def test_a_value_in_use_that_is_nan_is_never_a_reference() -> None:
    parts, scoring = asked(DECODE)
    parts[0].values[3] = np.nan
    with pytest.raises(OracleDisagreement):
        attend(parts, scoring)


def test_a_token_that_nobody_sees_does_not_count() -> None:
    parts, scoring = asked(Extend(**SIZES, prefixes=(5,), lengths=(3,), window=2))
    moved = [p._replace(keys=np.where(np.arange(8)[:, None, None] < 3, 50.0, p.keys)) for p in parts]
    np.testing.assert_array_equal(attend(parts, scoring), attend(moved, scoring))


def test_rows_are_computed_apart_and_in_order() -> None:
    spec = Prefill(**{**SIZES, "value_dim": 8}, lengths=(300, 2, 270))
    parts, scoring = asked(spec)
    alone = np.concatenate([attend([part], scoring) for part in parts])
    np.testing.assert_array_equal(attend(parts, scoring), alone)


@settings(max_examples=25, deadline=None)
@given(shift=st.floats(-50, 50), seed=st.integers(0, 1000))
def test_a_constant_added_to_all_scores_changes_nothing(shift: float, seed: int) -> None:
    """softmax(s + c) = softmax(s): a further dimension adds the constant."""
    parts, scoring = asked(DECODE.model_copy(update={"seed": seed}))
    wider = []
    for p in parts:
        query = np.concatenate([p.query, np.ones((*p.query.shape[:2], 1))], axis=2)
        keys = np.concatenate([p.keys, np.full((*p.keys.shape[:2], 1), shift)], axis=2)
        wider.append(p._replace(query=query, keys=keys))
    np.testing.assert_allclose(attend(wider, scoring), attend(parts, scoring), rtol=0, atol=1e-11)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), sinks=st.booleans())
def test_the_answer_lies_between_the_values(seed: int, sinks: bool) -> None:
    parts, scoring = asked(DECODE.model_copy(update={"seed": seed, "sinks": sinks}))
    for out, part in zip(attend(parts, scoring), parts, strict=True):
        low, high = part.values.min(axis=0).repeat(3, axis=0), part.values.max(axis=0).repeat(3, axis=0)
        if sinks:
            low, high = np.minimum(low, 0), np.maximum(high, 0)
        assert np.all(low - 1e-12 <= out) and np.all(out <= high + 1e-12)
