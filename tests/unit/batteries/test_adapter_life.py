import pytest

from kit.batteries import BATTERIES, adapter_life
from kit.batteries.multi_lora import SLOTS
from kit.check_spec import AdapterLife, CachedIdentities, FirstRequests
from kit.profile import find_profile, load_profiles
from kit.synthetic.adapter_programs import PROGRAMS, WALK, program
from kit.synthetic.catalogue import TINY_QWEN3

PROFILES = load_profiles()
SPECS = (AdapterLife, FirstRequests, CachedIdentities)


def planned(profile: str) -> list:
    return [p for p in BATTERIES["multi-lora"](PROFILES[profile]) if isinstance(p.case.spec, SPECS)]


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_lives_have_an_engine_with_fewer_slots_than_adapters(profile: str) -> None:
    lives = [p for p in planned(profile) if not isinstance(p.case.spec, CachedIdentities)]
    (session,) = {p.session.id: p.session for p in lives if p.session.spec.model == TINY_QWEN3.name}.values()
    assert session.spec.engine["max_loras_per_batch"] == SLOTS < len(session.spec.adapters)
    for _, case in lives:
        assert set(case.spec.adapters) <= set(session.spec.adapters) and case.spec.slots == SLOTS


def test_every_program_and_three_walks_of_a_hundred_operations_are_planned() -> None:
    specs = [p.case.spec for p in planned("cpu") if isinstance(p.case.spec, AdapterLife)]
    assert {spec.program for spec in specs} == {*PROGRAMS}
    walks = [spec for spec in specs if spec.program == WALK]
    heads = {name for s in walks for name in s.adapters}
    assert {"head", "everything"} <= heads and not heads & {*adapter_life.ALONE_IN_HEAD}
    assert len({spec.seed for spec in walks}) == 3 and {spec.operations for spec in walks} == {100}
    assert all(len(program(s.program, s.adapters, s.slots, s.seed, s.operations)) == 100 for s in walks)


def test_caches_share_the_session_of_their_variant() -> None:
    profile = find_profile("cpu")
    mine = {p.session.id: p.session for p in planned("cpu") if isinstance(p.case.spec, CachedIdentities)}
    others = {p.session.id: p.session for p in BATTERIES["lora-logprob"](profile)}
    (name,) = mine
    assert mine[name] == others[name]
    assert name.endswith(adapter_life.CACHE)


def test_a_profile_without_a_cache_variant_has_no_cases_of_caches() -> None:
    cpu = find_profile("cpu")
    absent = {**cpu.engine.variants, "radix-cache": cpu.engine.variants["lora-csgmv"]}
    profile = cpu.model_copy(update={"engine": cpu.engine.model_copy(update={"variants": absent})})
    assert not [c for _, c in BATTERIES["multi-lora"](profile) if isinstance(c.spec, CachedIdentities)]
