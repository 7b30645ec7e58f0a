"""Which identity each row has: every class is there, by counts that are published and by the definition of each name."""

from itertools import product

import pytest

from kit.synthetic import compositions
from kit.synthetic.compositions import NAMED, every_class, named, parts, patterns, random, shuffled

ADAPTERS = tuple(f"a{place}" for place in range(11))
SEEDS = range(20)

# Bell numbers (OEIS A000110) of rows + 1: partitions of the rows and the base model.
BELL = {1: 2, 2: 5, 3: 15, 4: 52, 5: 203}


def class_of(composition: tuple[str | None, ...]) -> tuple[int, ...]:
    """The class by its definition: adapters renamed in the order in which they appear, the base model kept."""
    names: dict[str | None, int] = {None: 0}
    return tuple(names.setdefault(identity, len(names)) for identity in composition)


@pytest.mark.parametrize("rows", BELL)
def test_every_class_of_small_batches_is_there_once(rows: int) -> None:
    found = [class_of(composition) for composition in every_class(rows, ADAPTERS, seed=3)]
    assert len(found) == len(set(found)) == BELL[rows]
    assert set(found) == {class_of(names) for names in product((None, *ADAPTERS[:rows]), repeat=rows)}
    assert list(patterns(rows)) == found


def test_adapters_take_turns_in_small_batches() -> None:
    for rows in (3, 4):
        used = {identity for composition in every_class(rows, ADAPTERS, seed=3) for identity in composition}
        assert used == {None, *ADAPTERS}


def runs(composition: tuple[str | None, ...]) -> list[str | None]:
    return [identity for place, identity in enumerate(composition) if place == 0 or identity != composition[place - 1]]


def odd(composition: tuple[str | None, ...]) -> list[int]:
    """Places of identities that appear once."""
    return [place for place, identity in enumerate(composition) if composition.count(identity) == 1]


@pytest.mark.parametrize("rows", [8, 13, 16])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_named_classes_are_what_their_names_say(rows: int, seed: int) -> None:
    of = {name: named(name, rows, ADAPTERS, seed) for name in NAMED}
    assert {len(composition) for composition in of.values()} == {rows}
    assert set(of["all-base"]) == {None}
    assert len(set(of["all-same"])) == 1 and None not in of["all-same"]
    assert len(runs(of["alternating"])) == rows and len(set(of["alternating"])) == 2
    assert None not in of["alternating"] and None in of["alternating-with-base"]
    assert len(runs(of["alternating-with-base"])) == rows and len(set(of["alternating-with-base"])) == 2
    assert len(runs(of["round-robin"])) == rows and len(set(of["round-robin"])) == 4
    assert len(runs(of["blocks"])) == len(set(of["blocks"])) == 4 and None in of["blocks"]
    first, between, again = runs(of["returning"])
    assert first == again != between
    places = {"base-first": 0, "base-in-the-middle": rows // 2, "base-last": rows - 1}
    for name, place in places.items():
        assert [at for at, identity in enumerate(of[name]) if identity is None] == [place]
    for name in ("first", "in-the-middle", "last"):
        (at,) = odd(of[f"odd-{name}"])
        assert at == places[f"base-{name}"] and len(set(of[f"odd-{name}"])) == 2 and None not in of[f"odd-{name}"]
    (base,), (adapter,) = odd(of["base-among-one-adapter"]), odd(of["adapter-among-base"])
    assert of["base-among-one-adapter"][base] is None and of["adapter-among-base"][adapter] is not None
    assert len(set(of["all-different"])) == min(rows, len(ADAPTERS) + 1)
    assert of["all-different-reversed"] == of["all-different"][::-1]


def test_a_seed_changes_which_adapters_a_class_takes_and_nothing_else_does() -> None:
    for name in set(NAMED) - {"all-base"}:
        found = {named(name, 16, ADAPTERS, seed) for seed in SEEDS}
        assert len(found) > 5, name
        assert named(name, 16, ADAPTERS, 1) == named(name, 16, ADAPTERS, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_batches_have_what_they_are_asked_for(seed: int) -> None:
    for rows in range(1, 17):
        assert len(random(rows, ADAPTERS, seed)) == rows
        assert set(random(rows, ADAPTERS, seed)) <= {None, *ADAPTERS}
    assert sorted(shuffled(ADAPTERS, f"{seed}")) == sorted(ADAPTERS)


def test_random_batches_differ_from_seed_to_seed_and_leave_no_identity_out() -> None:
    drawn = [random(16, ADAPTERS, seed) for seed in SEEDS]
    assert len(set(drawn)) == len(drawn)
    assert {identity for composition in drawn for identity in composition} == {None, *ADAPTERS}


@pytest.mark.parametrize("total", [1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257])
def test_parts_add_up_and_are_uneven(total: int) -> None:
    for count in range(1, min(total, 6) + 1):
        for label in ("a", "b", "c"):
            lengths = parts(total, count, label)
            assert (len(lengths), sum(lengths)) == (count, total) and min(lengths) >= 1
    if total >= 63:
        assert len(set(parts(total, 6, "a"))) >= 3


@pytest.mark.parametrize(("total", "count"), [(3, 4), (3, 0), (0, 0)])
def test_what_is_no_sum_is_refused(total: int, count: int) -> None:
    with pytest.raises(ValueError, match="no sum"):
        parts(total, count, "a")


def test_the_words_of_the_module_name_every_class() -> None:
    assert len(NAMED) == 17 and compositions.__doc__
