import pytest

from kit.batteries import BATTERIES, adapter_files
from kit.profile import load_profiles
from kit.synthetic.adapter_variants import VARIANTS
from kit.synthetic.catalogue import TINY_QWEN3
from kit.waiver import load_waivers

PROFILES = load_profiles()


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_adapter_files_have_an_engine_of_their_own_that_loads_while_it_serves(profile: str) -> None:
    planned = list(adapter_files.cases(PROFILES[profile]))
    (session,) = {planned.session.id: planned.session for planned in planned}.values()
    others = {s.id for s, case in BATTERIES["lora-logprob"](PROFILES[profile]) if case.spec.check != "adapter-file"}
    assert [case.spec.variant for _, case in planned] == [*VARIANTS]
    assert session.id not in others
    assert session.spec.engine["max_lora_rank"] == 16 >= max(a.rank for a in TINY_QWEN3.adapters)
    assert {case.spec.adapter for _, case in planned} | {case.spec.neighbour for _, case in planned} == {
        adapter.name for adapter in TINY_QWEN3.adapters
    }


def test_a_red_variant_has_one_waiver_that_names_it() -> None:
    named = [case for waiver in load_waivers().waiver for case in waiver.globs if "/adapter-file-" in case]
    assert len(named) == len(set(named)) > 0
    assert {case.rpartition("/adapter-file-")[2] for case in named} <= set(VARIANTS)
