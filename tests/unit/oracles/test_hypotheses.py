"""Served values are made by the oracle with a fault, in rounding noise; the fault must be named, and no other."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kit.oracles.hypotheses import Answered, explain
from kit.oracles.layers import NO_ADAPTER, Adapter
from kit.oracles.reference import LogprobOracle
from kit.synthetic.prompts import prompts

PROMPTS = prompts([24, 16], 2047, seed=9)
FLOAT32, BFLOAT16 = 1e-6, 1e-2  # rms of rounding, nat
NAMES = {
    "tiny-qwen3": ("adapter-0", "adapter-1", "rslora", "everything"),
    "tiny-gpt-oss": ("adapter-0", "adapter-1", "everything"),
}
Change = Callable[[Adapter], Adapter]


@pytest.fixture(scope="module")
def oracle_of(assets: Path) -> Callable[[str], LogprobOracle]:
    known = {
        model: LogprobOracle(assets / model, {name: assets / model / "adapters" / name for name in names})
        for model, names in NAMES.items()
    }
    return known.__getitem__


def rounding(size: int, rms: float, seed: int = 1) -> np.ndarray:
    return rms * np.random.Generator(np.random.Philox(key=seed)).normal(size=size)


def answered(oracle: LogprobOracle, identity: str | None, served: Adapter, rms: float = FLOAT32) -> Answered:
    values = np.concatenate([oracle.supposing(served, prompt) for prompt in PROMPTS])
    return Answered(identity, PROMPTS, (1, 1), values + rounding(values.size, rms), permitted=2 * rms**2)


def scaled(factor: float) -> Change:
    return lambda own: {name: replace(low, scaling=factor * low.scaling) for name, low in own.items()}


def without(mark: str) -> Change:
    return lambda own: {name: low for name, low in own.items() if mark not in name}


def swapped(own: Adapter) -> Adapter:
    """Query and key heads differ in number, so only A can be mistaken."""
    changed = dict(own)
    for layer in ("model.layers.0.self_attn", "model.layers.1.self_attn"):
        q, k = own[f"{layer}.q_proj"], own[f"{layer}.k_proj"]
        changed |= {f"{layer}.q_proj": replace(q, a=k.a), f"{layer}.k_proj": replace(k, a=q.a)}
    return changed


@pytest.mark.parametrize(
    ("model", "identity", "change", "named"),
    [
        ("tiny-qwen3", "adapter-0", lambda own: NO_ADAPTER, "adapter adapter-0 missing"),
        ("tiny-qwen3", "adapter-0", scaled(2.0), "its scaling doubled"),
        ("tiny-qwen3", "adapter-0", scaled(8**0.5), "its scaling with √rank for rank (alpha / √r)"),
        ("tiny-qwen3", "rslora", scaled(8**-0.5), "its scaling with rank for √rank (alpha / r)"),
        ("tiny-qwen3", "adapter-0", scaled(1.3), "its scaling is 1."),
        ("tiny-qwen3", "adapter-0", scaled(-1.0), "its scaling is -"),
        ("tiny-qwen3", "adapter-0", without(".self_attn."), "its attention part dropped"),
        ("tiny-qwen3", "everything", without(".mlp."), "its MLP part dropped"),
        ("tiny-qwen3", "everything", without("lm_head"), "its output head part dropped"),
        ("tiny-qwen3", "everything", without("embed_tokens"), "its embedding part dropped"),
        ("tiny-gpt-oss", "everything", without(".experts."), "its experts part dropped"),
        ("tiny-qwen3", "adapter-0", without(".layers.1."), "its layer 1 dropped"),
        ("tiny-qwen3", "adapter-1", swapped, "its q_proj and k_proj swapped"),
    ],
)
def test_a_fault_is_named(oracle_of: Callable, model: str, identity: str, change: Change, named: str) -> None:
    oracle = oracle_of(model)
    found = explain(oracle, answered(oracle, identity, change(oracle.adapters[identity]), BFLOAT16))
    assert found is not None and found.best is not None
    assert found.best.fault.startswith(named), (found.best, sorted(found.tried, key=lambda tried: tried.residual)[:3])
    assert "down to rounding" in found.sentence


def test_another_adapter_is_named(oracle_of: Callable) -> None:
    oracle = oracle_of("tiny-qwen3")
    found = explain(oracle, answered(oracle, "adapter-0", oracle.adapters["adapter-1"]))
    assert found.best.fault == "adapter adapter-1 instead of adapter-0"
    found = explain(oracle, answered(oracle, None, oracle.adapters["rslora"]))
    assert found.best.fault == "adapter rslora instead of none"


@pytest.mark.parametrize(("shift", "named"), [(1, "the position's before"), (-1, "the next position's")])
def test_shifted_positions_are_named(oracle_of: Callable, shift: int, named: str) -> None:
    oracle = oracle_of("tiny-qwen3")
    served = np.concatenate([np.roll(oracle.logprobs(prompt, "adapter-0"), shift) for prompt in PROMPTS])
    found = explain(oracle, Answered("adapter-0", PROMPTS, (1, 1), served, permitted=1e-12))
    assert found.best.fault == f"every value is {named}"


def test_what_is_no_known_fault_is_called_so(oracle_of: Callable) -> None:
    oracle = oracle_of("tiny-qwen3")
    right = np.concatenate([oracle.logprobs(prompt, "adapter-0") for prompt in PROMPTS])
    for served in (right + rounding(right.size, 0.3), right[::-1].copy(), np.full(right.size, -7.6)):
        found = explain(oracle, Answered("adapter-0", PROMPTS, (1, 1), served, permitted=1e-12))
        assert found.best is None
        assert found.sentence.startswith("None of ")


def test_only_the_prompts_that_are_wrong_are_explained(oracle_of: Callable) -> None:
    """A fault beyond a threshold of length leaves short prompts right; these must not blur what it is."""
    oracle = oracle_of("tiny-qwen3")
    own = oracle.adapters["adapter-0"]
    served = np.concatenate([oracle.supposing(scaled(2.0)(own), PROMPTS[0]), oracle.logprobs(PROMPTS[1], "adapter-0")])
    found = explain(oracle, Answered("adapter-0", PROMPTS, (1, 1), served, permitted=1e-12))
    assert found.best.fault == "its scaling doubled"


def test_the_tail_of_a_text_is_explained_by_its_own_positions(oracle_of: Callable) -> None:
    oracle = oracle_of("tiny-qwen3")
    served = oracle.supposing(NO_ADAPTER, PROMPTS[0])[12:]
    found = explain(oracle, Answered("adapter-0", PROMPTS[:1], (13,), served, permitted=1e-12))
    assert found.best.fault == "adapter adapter-0 missing"


@pytest.mark.parametrize("served", [np.full(23, np.nan), np.array([-1.0] * 22 + [-np.inf])])
def test_what_is_not_finite_is_not_explained(oracle_of: Callable, served: np.ndarray) -> None:
    assert explain(oracle_of("tiny-qwen3"), Answered(None, PROMPTS[:1], (1,), served, permitted=1e-12)) is None


def test_a_few_values_fit_anything_and_are_not_explained(oracle_of: Callable) -> None:
    served = np.array([-3.0, -4.0])
    assert explain(oracle_of("tiny-qwen3"), Answered("adapter-0", [[1, 2, 3]], (1,), served, permitted=1e-12)) is None
