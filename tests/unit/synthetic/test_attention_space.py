"""That the generated cases cover the space which they promise to cover."""

from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.attention_spec import Extend, GroupedDecode, Prefill
from kit.synthetic.attention_space import _LEGAL, COUNTS, SPACES, Kind, Size, build, generated
from kit.synthetic.pairwise import all_pairs, covering, pairs_of, values_of

KINDS: tuple[Kind, ...] = ("decode", "extend", "unified", "prefill")
SIZES: tuple[Size, ...] = ("full", "interpreter")


def test_a_gpu_gets_500_cases() -> None:
    assert sum(len(generated(kind, "full")) for kind in KINDS) == sum(COUNTS["full"].values()) == 500


@pytest.mark.parametrize("size", SIZES)
def test_names_are_unique_and_cases_differ(size: Size) -> None:
    for kind in KINDS:
        cases = generated(kind, size)
        assert max(Counter(case.name for case in cases).values()) == 1
        assert max(Counter(case.spec.model_copy(update={"seed": 0}).model_dump_json() for case in cases).values()) == 1


@pytest.mark.parametrize("kind", ["decode", "extend", "prefill"])
def test_every_legal_pair_of_values_meets_on_a_gpu(kind: Kind) -> None:
    """A pair counts as illegal only if the rules of the kernel forbid it with every other value."""
    dimensions = SPACES["full"][kind]
    met = met_pairs(kind, "full")
    missing = [pair for pair in all_pairs(dimensions) if pair not in met]
    possible = [pair for pair in missing if not forbidden(kind, pair)]
    assert len(possible) <= 0.03 * len(met), [readable(dimensions, pair) for pair in possible][:20]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_value_appears(kind: Kind, size: Size) -> None:
    met = met_pairs(kind, size)
    seen = {(pair[0], pair[1]) for pair in met} | {(pair[2], pair[3]) for pair in met}
    missing = {(n, i) for n, values in SPACES[size][kind].items() for i in range(len(values))} - seen
    assert not missing, [(name, SPACES[size][kind][name][index]) for name, index in missing]


def met_pairs(kind: Kind, size: Size) -> set:
    return {pair for choice in choices(kind, size) for pair in pairs_of(choice)}


@cache
def choices(kind: Kind, size: Size) -> list:
    """The choices behind the cases, read back from the specs."""
    dimensions, found = SPACES[size][kind], []
    from kit.synthetic import attention_space

    def legal(values):
        return _LEGAL[kind](values) and attention_space._affordable(build(kind, 0, values), size)

    for number, choice in enumerate(covering(f"attention-space/{kind}/{size}", dimensions, COUNTS[size][kind], legal)):
        assert build(kind, number, values_of(dimensions, choice)) == generated(kind, size)[number].spec
        found.append(choice)
    return found


def forbidden(kind: Kind, pair: tuple) -> bool:
    """Whether the two values are named by a rule, or together cost more than a case may."""
    dimensions = SPACES["full"][kind]
    values = {pair[0]: dimensions[pair[0]][pair[1]], pair[2]: dimensions[pair[2]][pair[3]]}
    cheap = {
        "batch": 1,
        "tokens": "one",
        "prefix": "none",
        "kv_heads": 1,
        "ratio": 1,
        "widths": (16, 16),
        "pages": "shuffled",
    }
    fixed = {"window": None, "temperature": None, "mask": "causal"}
    base = {name: options[0] for name, options in dimensions.items()} | {
        name: value for name, value in {**cheap, **fixed}.items() if name in dimensions
    }
    from kit.synthetic import attention_space

    together = base | values
    return not (_LEGAL[kind](together) and attention_space._affordable(build(kind, 0, together), "full"))


def readable(dimensions, pair: tuple) -> str:
    return f"{pair[0]}={dimensions[pair[0]][pair[1]]} {pair[2]}={dimensions[pair[2]][pair[3]]}"


def test_what_no_caller_asks_is_not_asked() -> None:
    for size in SIZES:
        for kind in KINDS:
            for case in generated(kind, size):
                spec = case.spec
                assert spec.query_heads <= 128
                assert spec.temperature_length is None or spec.window is None
                assert isinstance(spec, Extend) == (kind in ("extend", "unified"))
                if isinstance(spec, GroupedDecode):
                    assert max(spec.num_kv_splits) <= spec.max_kv_splits and min(spec.lengths) >= 1
                elif not spec.causal:
                    assert spec.window is None
                if isinstance(spec, Extend):
                    assert not (spec.tree_mask and (spec.unified or not spec.causal))


def test_lengths_lie_below_at_and_beyond_every_boundary() -> None:
    lengths = {n for case in generated("decode", "full") for n in case.spec.lengths}
    assert lengths >= {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1025}
    specs = [case.spec for case in generated("decode", "full")]
    assert any(min(spec.lengths) < max(spec.num_kv_splits) for spec in specs), "no request is shorter than its splits"
    assert any(len(set(spec.lengths)) > 3 for spec in specs), "no ragged batch"


def test_prefill_keys_and_values_are_of_one_size() -> None:
    """The kernel reads values with the size of keys."""
    assert all(
        isinstance(c.spec, Prefill) and c.spec.head_dim == c.spec.value_dim for c in generated("prefill", "full")
    )


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_pairs_are_covered_in_any_small_space(sizes: list[int]) -> None:
    dimensions = {f"d{number}": tuple(range(size)) for number, size in enumerate(sizes)}
    total = 1
    for size in sizes:
        total *= size
    count = min(total, 4 * max(sizes) ** 2)
    found = covering("test", dimensions, count, lambda values: True)
    assert {pair for choice in found for pair in pairs_of(choice)} == set(all_pairs(dimensions))
