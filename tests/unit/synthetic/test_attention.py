import numpy as np
import pytest

from kit.attention_spec import Content, Extend, GroupedDecode, PageOrder
from kit.synthetic.attention import attention_inputs, requests

SIZES = {"query_heads": 4, "kv_heads": 2, "head_dim": 8, "value_dim": 6}
ORDERS: tuple[PageOrder, ...] = ("shuffled", "ascending", "descending", "interleaved", "beyond-16-bits")
CONTENTS: tuple[Content, ...] = ("random", "large", "equal", "dominant", "constant", "revealing")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1, 4])
def test_every_slot_is_used_once_and_the_rest_is_marked(order: PageOrder, size: int) -> None:
    inputs = attention_inputs(GroupedDecode(**SIZES, lengths=(5, 100, 1), pages=order, page_size=size))
    used = np.concatenate(inputs.pages)
    assert len(set(used)) == len(used) == 106
    assert used.min() >= (65_536 if order == "beyond-16-bits" else size)
    unused = np.setdiff1d(np.arange(len(inputs.cache_keys)), used)
    assert len(unused) > 1
    assert np.all(np.isnan(inputs.cache_keys[unused])) and np.all(np.isnan(inputs.cache_values[unused]))
    for slots in inputs.pages:  # tokens of a page lie together and in order
        assert all(
            np.array_equal(np.diff(slots[at : at + size]), np.ones(len(slots[at : at + size]) - 1))
            for at in range(0, len(slots), size)
        )
    steps = np.diff(inputs.pages[1][::size])
    assert {
        "ascending": np.all(steps == size),
        "descending": np.all(steps == -size),
        "interleaved": np.all(steps > 0) and np.any(steps > size),
    }.get(order, np.any(steps > 0) and np.any(steps < 0))


@pytest.mark.parametrize("content", CONTENTS)
def test_inputs_are_exact_in_half_precision(content: Content) -> None:
    inputs = attention_inputs(Extend(**SIZES, prefixes=(20, 0), lengths=(3, 9), content=content, sinks=True))
    used = np.concatenate(inputs.pages)
    arrays = (inputs.query, inputs.new_keys, inputs.new_values, inputs.cache_keys[used], inputs.cache_values[used])
    for array in (*arrays, inputs.sinks):
        assert np.array_equal(array.astype(np.float16).astype(np.float32), array)
        assert not np.any(array.view(np.uint32) & 0xFFFF), "not exact in bfloat16"


def test_requests_put_prefix_and_new_tokens_in_order() -> None:
    spec = Extend(**SIZES, prefixes=(4, 0), lengths=(2, 3))
    inputs = attention_inputs(spec)
    first, second = requests(spec, inputs)
    np.testing.assert_array_equal(first.keys, np.concatenate([inputs.cache_keys[inputs.pages[0]], inputs.new_keys[:2]]))
    np.testing.assert_array_equal(second.keys, inputs.new_keys[2:])
    assert first.positions.tolist() == [4, 5] and second.positions.tolist() == [0, 1, 2]
    assert first.visible.astype(int).tolist() == [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]


def test_a_window_counts_positions_before_the_query() -> None:
    inputs = attention_inputs(Extend(**SIZES, prefixes=(4,), lengths=(2,), window=2))
    assert inputs.visible[0].astype(int).tolist() == [[0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1]]
    decode = attention_inputs(GroupedDecode(**SIZES, lengths=(5,), window=2))
    assert decode.visible[0].astype(int).tolist() == [[0, 0, 1, 1, 1]]


def test_a_tree_hides_some_earlier_tokens_and_never_the_own() -> None:
    inputs = attention_inputs(Extend(**SIZES, prefixes=(4,), lengths=(12,), tree_mask=True))
    new = inputs.visible[0][:, 4:]
    assert np.all(inputs.visible[0][:, :4]) and np.all(np.diag(new))
    assert not np.any(np.triu(new, 1)) and 12 < np.count_nonzero(new) < 12 * 13 // 2


def test_one_position_dominates() -> None:
    spec = GroupedDecode(**SIZES, lengths=(50,), content="dominant")
    (part,) = requests(spec, attention_inputs(spec))
    scores = np.einsum("hd,td->ht", part.query[0][:2], part.keys[:, 0]) / np.sqrt(8)
    top = np.sort(scores, axis=1)
    assert np.all(top[:, -1] - top[:, -2] > 5.0)
