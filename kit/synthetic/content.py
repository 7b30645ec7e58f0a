"""What queries, keys and values hold in each kind of attention case (`kit.attention_spec.Content`)."""

from dataclasses import dataclass

import numpy as np

from kit.attention_spec import Attention
from kit.synthetic.draws import below
from kit.synthetic.stream import Weights, bell

LARGE = 8.0
"""Standard deviation of large queries, and so of the scores."""
DOMINANCE = 20.0
"""Score of the dominant position of a request; the others have scores near 1."""
EDGES = (16, 32, 64, 128)
"""Block sizes of the kernels read (SGLang's Triton, Wave): positions beside their multiples are revealed."""


@dataclass(frozen=True)
class Drawn:
    """Queries [new tokens, query_heads, head_dim]; per request keys and values, [tokens, kv_heads, …]; revealed positions."""

    query: Weights
    keys: tuple[Weights, ...]
    values: tuple[Weights, ...]
    revealed: tuple[int, ...] = ()


def draw(spec: Attention, label: str, held: tuple[int, ...], new: tuple[int, ...]) -> Drawn:
    """Values on grids of at most 8 bits, exact in float16 and bfloat16."""

    def normal(part: str, *shape: int, std: float = 1.0) -> Weights:
        return bell(f"{label}/{part}", int(np.prod(shape)), std).reshape(shape)

    rows, heads, width = sum(new), (spec.query_heads, spec.kv_heads), (spec.head_dim, spec.value_dim)
    query = normal("query", rows, heads[0], width[0], std=LARGE if spec.content == "large" else 1.0)
    keys = [normal(f"keys/{row}", tokens, heads[1], width[0]) for row, tokens in enumerate(held)]
    values = [normal(f"values/{row}", tokens, heads[1], width[1]) for row, tokens in enumerate(held)]
    revealed: tuple[int, ...] = ()
    match spec.content:
        case "equal":
            keys = [np.broadcast_to(key[:1], key.shape).copy() for key in keys]
        case "constant":
            values = [np.broadcast_to(_constants(spec.kv_heads), value.shape).astype(np.float32) for value in values]
        case "dominant":
            query, keys = _dominant(spec, label, keys, rows)
        case "revealing":
            revealed = revealed_positions(spec, max(held))
            keys = [np.zeros_like(key) for key in keys]
            values = [_one_hot(value, revealed) for value in values]
        case _:
            pass
    return Drawn(query, tuple(keys), tuple(values), revealed)


def _constants(kv_heads: int) -> Weights:
    """[kv_heads, 1]: quarters, different for every head up to 252."""
    return (((1 + np.arange(kv_heads, dtype=np.float32)) % 253) / 4.0)[:, None]


def _dominant(spec: Attention, label: str, keys: list[Weights], rows: int) -> tuple[Weights, list[Weights]]:
    """Queries along one direction of ±1, half, once or twice as long by head; one key of a request along it too."""
    signs = np.array(below(f"{label}/signs", spec.head_dim, 2), np.float32) * 2.0 - 1.0
    length = np.array([(0.5, 1.0, 2.0)[head % 3] for head in range(spec.query_heads)], np.float32)
    query = np.broadcast_to(length[None, :, None] * signs, (rows, spec.query_heads, spec.head_dim)).copy()
    weight = max(round(DOMINANCE * 16.0 / spec.head_dim**0.5), 1) / 16.0
    for row, key in enumerate(keys):
        key[below(f"{label}/dominant/{row}", 1, len(key))[0]] = np.float32(min(weight, 15.9375)) * signs
    return query, keys


def revealed_positions(spec: Attention, tokens: int) -> tuple[int, ...]:
    """Positions that a faulty bound would add or lose, at most value_dim: all of them where they fit, else edges first."""
    if tokens <= spec.value_dim:
        return tuple(range(tokens))
    edges = {0, 1, tokens - 2, tokens - 1}
    if spec.window is not None:
        edges |= {tokens - 2 - spec.window, tokens - 1 - spec.window, tokens - spec.window}
    for size in EDGES:
        edges |= {place for multiple in range(size, tokens, size) for place in (multiple - 1, multiple)}
    legal = sorted(place for place in edges if 0 <= place < tokens)
    most = spec.value_dim
    return tuple(legal if len(legal) <= most else sorted({*legal[: most // 2], *legal[-(most - most // 2) :]}))


def _one_hot(values: Weights, revealed: tuple[int, ...]) -> Weights:
    out = np.zeros_like(values)
    for dimension, position in enumerate(revealed):
        if position < len(values):
            out[position, :, dimension] = 1.0
    return out
