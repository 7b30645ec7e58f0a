import math

import numpy as np
import pytest

from kit.oracles.attention import grouped_decode
from kit.oracles.twice import OracleDisagreement
from kit.plan import GroupedDecode
from kit.synthetic.attention import decode_inputs

SPEC = GroupedDecode(batch=2, query_heads=6, kv_heads=2, head_dim=8, value_dim=5, length=7)


def float64(spec: GroupedDecode) -> tuple:
    inputs = decode_inputs(spec)
    return (
        inputs.query.astype(float),
        inputs.keys.astype(float),
        inputs.values.astype(float),
        inputs.pages,
        inputs.scale,
    )


def one_by_one(query, keys, values, pages, scale):
    """The definition, one scalar at a time."""
    out = np.zeros((*query.shape[:2], values.shape[2]))
    for b, slots in enumerate(pages):
        for h in range(query.shape[1]):
            kv = h // (query.shape[1] // keys.shape[1])
            scores = [scale * math.fsum(query[b, h, d] * keys[s, kv, d] for d in range(query.shape[2])) for s in slots]
            weights = [math.exp(score) for score in scores]
            for d in range(values.shape[2]):
                out[b, h, d] = math.fsum(w * values[s, kv, d] for w, s in zip(weights, slots, strict=True)) / math.fsum(
                    weights
                )
    return out


def test_it_is_the_definition() -> None:
    arguments = float64(SPEC)
    np.testing.assert_allclose(grouped_decode(*arguments), one_by_one(*arguments), rtol=0, atol=1e-13)


def test_where_tokens_lie_in_the_cache_does_not_matter() -> None:
    query, keys, values, pages, scale = float64(SPEC)
    order = np.random.Generator(np.random.Philox(key=1)).permutation(len(keys))
    place = np.argsort(order)
    moved = grouped_decode(query, keys[order], values[order], [place[slots] for slots in pages], scale)
    np.testing.assert_allclose(moved, grouped_decode(query, keys, values, pages, scale), rtol=0, atol=1e-14)


def test_equal_keys_give_the_mean_of_the_values() -> None:
    query, keys, values, pages, scale = float64(SPEC)
    out = grouped_decode(query, np.ones_like(keys), values, pages, scale)
    np.testing.assert_allclose(out[1, 4], values[pages[1], 1].mean(axis=0), rtol=0, atol=1e-14)


def test_large_scores_do_not_overflow() -> None:
    query, keys, values, pages, scale = float64(SPEC)
    assert np.all(np.isfinite(grouped_decode(query * 1e4, keys, values, pages, scale)))


def test_a_used_slot_that_is_nan_is_never_a_reference() -> None:
    query, keys, values, pages, scale = float64(SPEC)
    values[pages[0][3]] = np.nan
    with pytest.raises(OracleDisagreement):
        grouped_decode(query, keys, values, pages, scale)


@pytest.mark.parametrize("length", [5, 100])
def test_inputs_use_every_slot_once_and_poison_the_rest(length: int) -> None:
    spec = SPEC.model_copy(update={"length": length})
    inputs = decode_inputs(spec)
    used = np.concatenate(inputs.pages)
    assert len(set(used)) == len(used) == 2 * length
    assert 0 not in used
    assert not np.array_equal(np.sort(used), used), "the page table is not shuffled"
    unused = np.setdiff1d(np.arange(len(inputs.keys)), used)
    assert len(unused) > 1
    assert np.all(np.isnan(inputs.keys[unused])) and np.all(np.isnan(inputs.values[unused]))
    for array in (inputs.query, inputs.keys[used], inputs.values[used]):
        assert np.array_equal(array.astype(np.float16).astype(np.float32), array)
