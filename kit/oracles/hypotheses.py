"""What a wrong answer looks like: a fixed set of faults, each computed by the oracle and held against what was served.

A fault is named where it explains the served values clearly better than the right model does; see `Explanation.best`. These
values are no verdict, so they are computed once.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from kit.oracles.layers import NO_ADAPTER, Adapter
from kit.oracles.metrics import Values, mean_half_square, slope
from kit.oracles.reference import LogprobOracle

CLEARLY_BETTER = 10.0
"""By which factor a fault's mean ½Δ² must be below the right model's to be named: its errors are three times smaller."""

FITTED_BETTER = 4.0
"""By which factor a fitted scale must beat every fault without a free number: else those say more."""

FEWEST_VALUES = 8
MOST_TOKENS = 256
"""Fewer values fit by chance; more tokens tell no more."""

_SAME_SCALE = 1e-3
_STEPS = 8

_CLASSES = {
    "attention": ".self_attn.",
    "MLP": ".mlp.",
    "experts": ".mlp.experts.",
    "output head": "lm_head",
    "embedding": "embed_tokens",
}


@dataclass(frozen=True)
class Answered:
    """What a subject answered for one identity.

    Attributes:
        identity: name of the adapter, None for the base model.
        prompts: token ids. starts: per prompt the place of the first token that is judged, at least 1.
        served: log-probabilities of the judged tokens, joined over the prompts: [positions], nat.
        permitted: mean ½Δ² that a right answer may have, nat².
    """

    identity: str | None
    prompts: Sequence[Sequence[int]]
    starts: Sequence[int]
    served: Values
    permitted: float


class Tried(NamedTuple):
    """A fault, as a phrase, and the mean ½Δ² that it leaves, nat²."""

    fault: str
    residual: float


@dataclass(frozen=True)
class Explanation:
    """What fits the served values how well.

    Attributes:
        right: mean ½Δ² to the right model, nat². permitted: what it may be.
        tried: faults without a free number, then the fitted scale if there is an adapter to scale.
    """

    right: float
    permitted: float
    tried: tuple[Tried, ...]
    fitted: Tried | None

    @property
    def best(self) -> Tried | None:
        """The fault that explains the values, or None.

        It leaves at most a tenth of the right model's mean ½Δ². A fitted scale has a free number, so it must beat the
        best of the others by a factor of 4, unless they explain nothing.
        """
        best = min(self.tried, key=lambda tried: tried.residual, default=None)
        if self.fitted is not None and (best is None or self.fitted.residual * FITTED_BETTER < best.residual):
            best = self.fitted
        if best is None or not best.residual * CLEARLY_BETTER <= self.right:
            return None
        return best

    @property
    def sentence(self) -> str:
        """For a person who reads the report."""
        if (best := self.best) is None:
            return f"None of {len(self.tried) + (self.fitted is not None)} known faults explains the values."
        if best.residual <= self.permitted:
            return f"The values are those of this fault, down to rounding: {best.fault}."
        return f"The values are most like this fault ({self.right / best.residual:.0f} times nearer than right): {best.fault}."


def explain(oracle: LogprobOracle, answered: Answered) -> Explanation | None:
    """Which fault explains the answer; None where there is too little to tell, or a value is not finite."""
    chosen = _worst(oracle, answered)
    if chosen.served.size < FEWEST_VALUES or not np.all(np.isfinite(chosen.served)):
        return None
    own = NO_ADAPTER if chosen.identity is None else oracle.adapters[chosen.identity]

    def judged(adapter: Adapter) -> Values:
        parts = (oracle.supposing(adapter, prompt) for prompt in chosen.prompts)
        return np.concatenate([part[start - 1 :] for part, start in zip(parts, chosen.starts, strict=True)])

    def residual(adapter: Adapter) -> float:
        return mean_half_square(chosen.served, judged(adapter))

    right = judged(own)
    tried = [Tried(fault, residual(adapter)) for fault, adapter in _wrong_adapters(oracle.adapters, chosen.identity)]
    tried += _shifted(chosen, right)
    fitted = _fitted(own, judged, chosen.served) if own else None
    return Explanation(mean_half_square(chosen.served, right), chosen.permitted, tuple(tried), fitted)


def _worst(oracle: LogprobOracle, answered: Answered) -> Answered:
    """The prompts that are outside what is permitted, the most values first, up to `MOST_TOKENS` tokens."""
    counts = [len(prompt) - start for prompt, start in zip(answered.prompts, answered.starts, strict=True)]
    parts = np.split(answered.served, np.cumsum(counts)[:-1])
    kept: list[tuple[Sequence[int], int, Values]] = []
    for place in sorted(range(len(counts)), key=lambda place: -counts[place]):
        prompt, start, served = answered.prompts[place], answered.starts[place], parts[place]
        tokens = sum(len(other) for other, _, _ in kept) + len(prompt)
        if not served.size or (kept and tokens > MOST_TOKENS):
            continue
        if not mean_half_square(served, oracle.logprobs(prompt, answered.identity)[start - 1 :]) <= answered.permitted:
            kept.append((prompt, start, served))
    return replace(
        answered,
        prompts=[prompt for prompt, _, _ in kept],
        starts=[start for _, start, _ in kept],
        served=np.concatenate([np.empty(0), *(served for _, _, served in kept)]),
    )


def _wrong_adapters(adapters: Mapping[str, Adapter], identity: str | None) -> Iterator[tuple[str, Adapter]]:
    """Faults that are another adapter than the right one."""
    for name, other in adapters.items():
        if name != identity:
            yield f"adapter {name} instead of {identity or 'none'}", other
    if identity is None or not (own := adapters[identity]):
        return
    yield f"adapter {identity} missing", NO_ADAPTER
    yield "its scaling doubled", _scaled(own, 2.0)
    rank = next(iter(own.values())).a.shape[0]
    yield "its scaling with √rank for rank (alpha / √r)", _scaled(own, math.sqrt(rank))
    yield "its scaling with rank for √rank (alpha / r)", _scaled(own, 1.0 / math.sqrt(rank))
    for part, mark in _CLASSES.items():
        yield from _without(own, f"its {part} part dropped", mark)
    for layer in sorted({name.split(".")[2] for name in own if name.startswith("model.layers.")}, key=int):
        yield from _without(own, f"its layer {layer} dropped", f"model.layers.{layer}.")
    if any(name.endswith(".k_proj") for name in own):
        yield "its q_proj and k_proj swapped", _swapped(own)


def _without(own: Adapter, fault: str, mark: str) -> Iterator[tuple[str, Adapter]]:
    """The adapter without the modules that bear a mark, unless these are none or all."""
    rest = {name: low for name, low in own.items() if mark not in name}
    if mark == _CLASSES["MLP"] and any(_CLASSES["experts"] in name for name in own):
        return
    if 0 < len(rest) < len(own):
        yield fault, rest


def _scaled(own: Adapter, factor: float) -> Adapter:
    return {name: replace(low, scaling=factor * low.scaling) for name, low in own.items()}


def _swapped(own: Adapter) -> Adapter:
    """A and, where shapes allow, B of q_proj and k_proj in each other's place."""
    changed = dict(own)
    for name in own:
        other = f"{name.removesuffix('q_proj')}k_proj"
        if name.endswith(".q_proj") and other in own:
            q, k = own[name], own[other]
            fits = q.b.shape == k.b.shape
            changed[name] = replace(q, a=k.a, b=k.b if fits else q.b)
            changed[other] = replace(k, a=q.a, b=q.b if fits else k.b)
    return changed


def _shifted(chosen: Answered, right: Values) -> Iterator[Tried]:
    """Each prompt's values one place off; what falls off its end is left out."""
    ends = np.cumsum([len(prompt) - start for prompt, start in zip(chosen.prompts, chosen.starts, strict=True)])[:-1]
    pairs = list(zip(np.split(chosen.served, ends), np.split(right, ends), strict=True))
    for fault, later, earlier in (
        ("every value is the next position's", slice(None, -1), slice(1, None)),
        ("every value is the position's before", slice(1, None), slice(None, -1)),
    ):
        served = np.concatenate([part[later] for part, _ in pairs])
        moved = np.concatenate([part[earlier] for _, part in pairs])
        if served.size:
            yield Tried(fault, mean_half_square(served, moved))


def _fitted(own: Adapter, judged: Callable[[Adapter], Values], served: Values) -> Tried:
    """The scale of the adapter that fits best: Gauss–Newton from the least-squares slope on the adapter's whole change."""
    base = judged(NO_ADAPTER)
    scale = slope(served - base, judged(own) - base)
    for _ in range(_STEPS):
        at, near = judged(_scaled(own, scale)), judged(_scaled(own, scale + _SAME_SCALE))
        step = slope(served - at, (near - at) / _SAME_SCALE)
        if not math.isfinite(step):
            break
        scale += step
        if abs(step) < _SAME_SCALE * abs(scale):
            break
    return Tried(
        f"its scaling is {scale:.4g} times what it should be", mean_half_square(served, judged(_scaled(own, scale)))
    )
