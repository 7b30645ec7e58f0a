"""A cache that is mostly empty: what is filled, what is poison, and what is told where it does not fit."""

import numpy as np
import pytest
import torch

from kit.attention_spec import GroupedDecode
from kit.batteries import kernels
from kit.profile import load_profiles
from kit.subjects.kernels import tensors
from kit.subjects.kernels.tensors import Placing, moved, no_room
from kit.synthetic.attention import attention_inputs

FAR = GroupedDecode(query_heads=2, kv_heads=2, head_dim=16, value_dim=16, lengths=(5, 9), first_slot=1000)


@pytest.mark.parametrize("poison", ["nan", "huge"])
def test_only_the_slots_in_use_are_filled_and_what_lies_near_is_poison(poison: str) -> None:
    inputs = attention_inputs(FAR)
    placing = Placing.of(FAR, "cpu", poison)  # type: ignore[arg-type]
    cache = placing.cache(inputs.cache_keys)
    for slots, near in zip(moved(FAR, inputs).pages, inputs.pages, strict=True):
        np.testing.assert_array_equal(cache[torch.from_numpy(slots)].float().numpy(), inputs.cache_keys[near])
        assert slots.min() >= FAR.first_slot
    fill = torch.full((1,), placing.fill(torch.float16), dtype=torch.float16)
    for place in (0, len(inputs.cache_keys) - 1, FAR.first_slot - 1, len(cache) - 1):
        assert torch.equal(cache[place], fill.expand(2, 16)) or bool(torch.isnan(cache[place]).all())


def test_an_offset_that_is_cut_to_32_bits_ends_in_poison() -> None:
    """In the cases of the battery: 2³² values are a whole number of slots, so slot 2³² / values + i becomes slot i."""
    for _, case in kernels.cases(load_profiles()["H200-1gpu"]):
        spec = case.spec
        if "far-slots" not in case.id or not case.id.endswith("32-bits"):
            continue
        assert isinstance(spec, kernels.GroupedDecode | kernels.Extend)
        assert spec.first_slot * spec.kv_heads * spec.head_dim % 2**32 == 0
        held = len(attention_inputs(spec).cache_keys)
        assert max(slots.max() for slots in attention_inputs(spec).pages) < held < spec.first_slot


def test_a_cache_that_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    far = FAR.model_copy(update={"first_slot": 2**32 // 32})
    monkeypatch.setattr(tensors.torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(tensors.torch.cuda, "mem_get_info", lambda: (10 << 30, 80 << 30))
    assert no_room(far, "cuda") == "a cache of 16 GiB does not fit into the 10 GiB of the GPU that are free"
    monkeypatch.setattr(tensors.torch.cuda, "mem_get_info", lambda: (60 << 30, 80 << 30))
    assert no_room(far, "cuda") is None
    assert no_room(FAR.model_copy(update={"first_slot": 0}), "cuda") is None
