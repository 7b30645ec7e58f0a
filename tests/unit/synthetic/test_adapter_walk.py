"""Programs of an adapter's life: legal, reproducible, and about everything that they promise to be about."""

from itertools import pairwise
from pathlib import Path

import pytest

from kit.batteries.adapter_life import OPERATIONS, SEEDS, walked
from kit.errors import UsageFault
from kit.synthetic.adapter_contents import write_content
from kit.synthetic.adapter_files import read_parts
from kit.synthetic.adapter_programs import ONE_SLOT, PROGRAMS, RELOAD, WALK, program
from kit.synthetic.adapter_walk import (
    MOST_WALKED,
    PROMPTS,
    Content,
    Load,
    Refusal,
    Refuse,
    Reload,
    Standing,
    Step,
    Unload,
    walk,
)
from kit.synthetic.catalogue import MODELS, TINY_QWEN3

SLOTS = 3
SESSION = walked(TINY_QWEN3)


def replayed(steps: tuple[Step, ...]) -> Standing:
    """What is loaded in the end; raises where an act is not legal or nothing stands under a served name."""
    standing = Standing(SESSION)
    for step in steps:
        standing.take(step.act)
        assert step.batches
        for batch in step.batches:
            assert len({row.identity for row in batch}) == len(batch) > 0
            for row in batch:
                standing.content(row.identity)
                assert -1 <= row.start < PROMPTS[row.prompt]
        assert len(standing.loaded) <= MOST_WALKED
        assert standing.pinned <= standing.loaded.keys()
        assert len(standing.pinned) < SLOTS
    return standing


@pytest.mark.parametrize("seed", range(8))
def test_a_walk_is_legal_whatever_its_seed(seed: int) -> None:
    steps = walk(SESSION, seed, OPERATIONS, SLOTS)
    assert len(steps) == OPERATIONS
    replayed(steps)
    assert steps == walk(SESSION, seed, OPERATIONS, SLOTS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_is_legal(name: str) -> None:
    replayed(program(name, SESSION, SLOTS, seed=1, operations=OPERATIONS))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_planned_walk_is_about_everything(seed: int) -> None:
    steps = walk(SESSION, seed, OPERATIONS, SLOTS)
    assert {step.kind for step in steps} == {
        "load",
        "pin",
        "unload",
        "reload",
        "one",
        "mixed",
        "base",
        "evict",
        "refuse",
    }
    loaded = [step.act for step in steps if isinstance(step.act, Load | Reload)]
    assert {act.content.shape for act in loaded} == set(SESSION)
    sizes = {len(batch) for step in steps for batch in step.batches}
    assert sizes == {1, 2, 3, 4}
    starts = {(row.start, PROMPTS[row.prompt]) for step in steps for batch in step.batches for row in batch}
    for length in PROMPTS:
        assert {(0, length), (length // 2, length), (length - 1, length), (-1, length)} <= starts
    refused = {step.act.kind for step in steps if isinstance(step.act, Refuse)}
    unreachable = {Refusal.OTHER_BASE, Refusal.TOO_MANY_PINNED}
    assert refused >= set(Refusal) - unreachable


def test_walks_differ() -> None:
    assert len({walk(SESSION, seed, OPERATIONS, SLOTS) for seed in SEEDS}) == len(SEEDS)


def test_an_evicted_adapter_comes_back_after_as_many_others_as_there_are_slots() -> None:
    for step in walk(SESSION, 1, OPERATIONS, SLOTS):
        if step.kind == "evict":
            name, *others, again = [batch[0].identity for batch in step.batches]
            assert again == name and name not in others and None not in others
            assert len(others) == SLOTS


def test_in_the_one_slot_that_is_left_every_identity_follows_every_other() -> None:
    steps = program(ONE_SLOT, SESSION, SLOTS, 0, 0)
    assert replayed(steps).pinned == {"pinned-0", "pinned-1"}
    served = [step.batches[0][0].identity for step in steps if step.act is None]
    identities = {None, *SESSION}
    pairs = [*pairwise(served)]
    assert len(pairs) == len(set(pairs)) == len(identities) * (len(identities) - 1)
    assert {left for left, _ in pairs} == identities


def test_under_one_name_more_modules_follow_fewer_and_the_other_way_round() -> None:
    steps = program(RELOAD, SESSION, SLOTS, 0, 0)
    shapes = {adapter.name: adapter for adapter in TINY_QWEN3.all_adapters}
    acts = [step.act for step in steps if isinstance(step.act, Load | Reload)]
    assert len({act.name for act in acts}) == 1
    follows = [(shapes[a.content.shape], shapes[b.content.shape]) for a, b in pairwise(acts)]
    assert any(set(a.modules) > set(b.modules) for a, b in follows)
    assert any(set(a.modules) < set(b.modules) for a, b in follows)
    assert any(a.rank > b.rank for a, b in follows) and any(a.rank < b.rank for a, b in follows)
    assert any(a.content == b.content for a, b in pairwise(acts))
    assert isinstance(steps[-1].act, Unload)


@pytest.mark.parametrize("kind", Refusal)
def test_after_a_refusal_everybody_is_served_and_the_name_is_loaded(kind: Refusal) -> None:
    steps = program(f"refused-{kind}", SESSION, SLOTS, 0, 0)
    (place,) = [place for place, step in enumerate(steps) if isinstance(step.act, Refuse)]
    served = {row.identity for batch in steps[place].batches for row in batch}
    assert {None, SESSION[0], SESSION[1]} < served
    after = steps[place + 1].act
    assert isinstance(after, Load | Reload) and after.name == steps[place].act.name


@pytest.mark.parametrize(
    "act", [Load("adapter-0", Content("mlp", 1)), Unload("walk-0"), Reload("walk-0", Content("mlp", 1))]
)
def test_what_is_not_legal_is_refused(act: Load | Unload | Reload) -> None:
    with pytest.raises(ValueError, match="not legal"):
        Standing(SESSION).take(act)


def test_an_unknown_program_is_named() -> None:
    with pytest.raises(UsageFault, match="walkk"):
        program("walkk", SESSION, SLOTS, 0, 0)
    assert WALK in PROGRAMS


def test_editions_have_the_shape_of_the_catalogue_and_weights_of_their_own(assets: Path, tmp_path: Path) -> None:
    for shape in ("query-value", "everything"):
        original = read_parts(assets / "tiny-qwen3/adapters" / shape)
        parts = []
        for edition in (1, 2):
            write_content(TINY_QWEN3, Content(shape, edition), tmp_path / f"{shape}{edition}")
            parts.append(read_parts(tmp_path / f"{shape}{edition}"))
        for made, other in ((parts[0], original), (parts[1], original), (parts[0], parts[1])):
            assert made.config == other.config
            assert made.tensors.keys() == other.tensors.keys()
            assert all((made.tensors[name] != other.tensors[name]).mean() > 0.9 for name in made.tensors)


@pytest.mark.parametrize("model", MODELS)
def test_walked_adapters_differ_in_modules_and_ranks(model: str) -> None:
    shapes = [adapter for adapter in MODELS[model].all_adapters if adapter.name in walked(MODELS[model])]
    assert not any(shape.stabilised for shape in shapes)
    assert {shape.rank for shape in shapes} >= {4, 8, 16, 64}
    modules = {module for shape in shapes for module in shape.modules}
    assert {"q_proj", "embed_tokens", "lm_head"} <= modules
