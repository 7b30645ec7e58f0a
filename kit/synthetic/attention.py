"""Seeded inputs of attention cases: queries, keys and values, a page table, masks. They follow from the spec alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kit.attention_spec import Attention, AttentionSpec, Cached, Extend, GroupedDecode, Prefill
from kit.synthetic.content import draw
from kit.synthetic.draws import below
from kit.synthetic.pages import page_table
from kit.synthetic.stream import Weights, bell

Slots: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class AttentionInputs:
    """Inputs of one call. All values are exact in float16 and bfloat16; slots that no request uses hold NaN.

    Attributes:
        query: [new tokens, query_heads, head_dim], the requests one after the other.
        new_keys, new_values: [new tokens, kv_heads, …]; empty in decode, where the new token is in the cache.
        cache_keys, cache_values: [slots, kv_heads, …]; empty in prefill. Slot 0 is never used, as in SGLang.
        pages: per request, the slots of its cached tokens in order; no slot is used twice.
        new: new tokens of each request.
        visible: per request, [new tokens, cached and new tokens]: what each new token may see.
        tree: per request, the same for a tree mask alone, without causality and window; empty without one.
        sinks: [query_heads], None without sinks.
        scale: factor of the scores, 1/√head_dim.
        revealed: positions whose value is one-hot in the dimension of their index, where the content is ``revealing``.
    """

    query: Weights
    new_keys: Weights
    new_values: Weights
    cache_keys: Weights
    cache_values: Weights
    pages: tuple[Slots, ...]
    new: tuple[int, ...]
    visible: tuple[Mask, ...]
    tree: tuple[Mask, ...]
    sinks: Weights | None
    scale: float
    revealed: tuple[int, ...]


class Request(NamedTuple):
    """One request as the formula sees it.

    Attributes:
        query: [new tokens, query_heads, head_dim]. keys, values: [tokens, kv_heads, …], in order.
        visible: [new tokens, tokens]. positions: of the new tokens, [new tokens].
    """

    query: Weights
    keys: Weights
    values: Weights
    visible: Mask
    positions: npt.NDArray[np.int64]


def attention_inputs(spec: AttentionSpec) -> AttentionInputs:
    """The inputs of a case."""
    cached, new = cached_lengths(spec), new_lengths(spec)
    label = _label(spec, cached, new)
    held = _tokens_held(spec, cached, new)
    drawn = draw(spec, label, held, new)
    in_cache = cached if isinstance(spec, Cached) else tuple(0 for _ in new)
    pages, slots = page_table(spec, label, in_cache) if isinstance(spec, Cached) else (_no_pages(new), 0)
    tree = _trees(spec, label, new)
    shared = 0 if isinstance(spec, GroupedDecode) else 1  # new tokens lie beside the cache
    return AttentionInputs(
        query=drawn.query,
        new_keys=_new(drawn.keys, in_cache, new, shared),
        new_values=_new(drawn.values, in_cache, new, shared),
        cache_keys=_cache(drawn.keys, pages, slots),
        cache_values=_cache(drawn.values, pages, slots),
        pages=pages,
        new=new,
        visible=_visible(spec, tree, new),
        tree=tree,
        sinks=bell(f"{label}/sinks", spec.query_heads, 1.0) if spec.sinks else None,
        scale=spec.head_dim**-0.5,
        revealed=drawn.revealed,
    )


def requests(spec: AttentionSpec, inputs: AttentionInputs) -> Iterator[Request]:
    """The requests, with keys and values gathered through the page table."""
    starts = (0, *accumulate(inputs.new))
    for row, (start, end) in enumerate(pairwise(starts)):
        slots, keys, values = inputs.pages[row], inputs.cache_keys, inputs.cache_values
        if isinstance(spec, GroupedDecode):
            keys, values = keys[slots], values[slots]
        else:
            keys = np.concatenate([keys[slots], inputs.new_keys[start:end]])
            values = np.concatenate([values[slots], inputs.new_values[start:end]])
        first = len(keys) - (end - start)
        yield Request(inputs.query[start:end], keys, values, inputs.visible[row], np.arange(first, len(keys)))


def cached_lengths(spec: AttentionSpec) -> tuple[int, ...]:
    """Tokens of each request in the cache."""
    match spec:
        case GroupedDecode():
            return spec.lengths
        case Extend():
            return spec.prefixes
        case Prefill():
            return tuple(0 for _ in spec.lengths)


def new_lengths(spec: AttentionSpec) -> tuple[int, ...]:
    """New tokens of each request."""
    return tuple(1 for _ in spec.lengths) if isinstance(spec, GroupedDecode) else spec.lengths


def _before(spec: AttentionSpec) -> tuple[int, ...]:
    """Tokens before the first new one, request by request."""
    return tuple(n - 1 for n in spec.lengths) if isinstance(spec, GroupedDecode) else cached_lengths(spec)


def _label(spec: Attention, cached: tuple[int, ...], new: tuple[int, ...]) -> str:
    sizes = (spec.query_heads, spec.kv_heads, spec.head_dim, spec.value_dim, *cached, *new)
    return "/".join(str(part) for part in ("attention", spec.seed, *sizes))


def _tokens_held(spec: AttentionSpec, cached: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """Tokens of each request that have a key."""
    return cached if isinstance(spec, GroupedDecode) else tuple(c + n for c, n in zip(cached, new, strict=True))


def _no_pages(new: tuple[int, ...]) -> tuple[Slots, ...]:
    return tuple(np.zeros(0, np.int64) for _ in new)


def _new(tokens: tuple[Weights, ...], cached: tuple[int, ...], new: tuple[int, ...], shared: int) -> Weights:
    parts = [held[c : c + n * shared] for held, c, n in zip(tokens, cached, new, strict=True)]
    return np.concatenate(parts)


def _cache(tokens: tuple[Weights, ...], pages: tuple[Slots, ...], slots: int) -> Weights:
    cache = np.full((slots, *tokens[0].shape[1:]), np.nan, np.float32)
    for held, places in zip(tokens, pages, strict=True):
        cache[places] = held[: len(places)]
    return cache


def _trees(spec: AttentionSpec, label: str, new: tuple[int, ...]) -> tuple[Mask, ...]:
    """Per request [new, before + new]: all of the prefix, every other new token by chance, and always itself."""
    if not (isinstance(spec, Extend) and spec.tree_mask):
        return ()
    masks = []
    for row, (before, count) in enumerate(zip(spec.prefixes, new, strict=True)):
        drawn = np.array(below(f"{label}/tree/{row}", count * count, 2), np.bool_).reshape(count, count)
        branches = np.tril(drawn, -1) | np.eye(count, dtype=np.bool_)
        masks.append(np.concatenate([np.ones((count, before), np.bool_), branches], axis=1))
    return tuple(masks)


def _visible(spec: AttentionSpec, tree: tuple[Mask, ...], new: tuple[int, ...]) -> tuple[Mask, ...]:
    """Per request [new, before + new]. Every new token sees itself."""
    seen = []
    for row, (before, count) in enumerate(zip(_before(spec), new, strict=True)):
        query, key = np.arange(before, before + count)[:, None], np.arange(before + count)[None, :]
        mask = (key <= query) if isinstance(spec, GroupedDecode) or spec.causal else np.ones_like(key <= query)
        if spec.window is not None:
            mask = mask & (query - key <= spec.window)
        seen.append(mask & tree[row] if tree else mask)
    return tuple(seen)
