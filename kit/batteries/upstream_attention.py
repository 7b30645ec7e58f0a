"""The matrix of SGLang's test_wave_attention_kernels.py, as it is: shapes, lengths, splits and seed."""

from typing import NamedTuple

from kit.attention_spec import Dtype, Extend, GroupedDecode, Prefill
from kit.synthetic.pairwise import Draw

SEED = 42


class Shape(NamedTuple):
    """Sizes of one decode step."""

    batch: int
    query_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int


MULTI_HEAD = Shape(2, 16, 16, 64, 64)
MULTI_QUERY = Shape(2, 16, 1, 64, 64)
ODD_HEAD_DIM = Shape(2, 128, 1, 80, 80)
LARGE_BATCH = Shape(32, 128, 2, 512, 512)
LARGE_HEAD_DIM = Shape(2, 128, 2, 512, 512)
LATENT = Shape(2, 128, 1, 576, 512)  # as in multi-head latent attention

SHAPES = (MULTI_HEAD, MULTI_QUERY, ODD_HEAD_DIM, LARGE_BATCH, LARGE_HEAD_DIM, LATENT)
LENGTHS = (5, 100, 128, 500)
DECODE = tuple((shape, length) for length in LENGTHS for shape in SHAPES)
# What an interpreter does in seconds: every length, and every shape except the large batch.
DECODE_PART = (
    *((MULTI_QUERY, length) for length in LENGTHS),
    (MULTI_HEAD, 5),
    (ODD_HEAD_DIM, 5),
    (LATENT, 5),
)

PREFILL = tuple((size, length, causal) for size in (128, 96) for length in (128, 256) for causal in (False, True))
PREFILL_PART = tuple((size, 128, causal) for size in (128, 96) for causal in (False, True))


def decode(shape: Shape, length: int, dtype: Dtype) -> tuple[str, GroupedDecode]:
    """Grouped decode: eight splits in the workspace, four in use. Upstream calls the grouped kernel whatever the heads."""
    batch, query_heads, kv_heads, head_dim, value_dim = shape
    spec = GroupedDecode(
        query_heads=query_heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        dtype=dtype,
        lengths=(length,) * batch,
        max_kv_splits=8,
        num_kv_splits=(4,),
        upstream=True,
        seed=SEED,
    )
    return f"b{batch}-hq{query_heads}-hkv{kv_heads}-d{head_dim}-dv{value_dim}-s{length}", spec


def extend(dtype: Dtype) -> tuple[str, Extend]:
    """32 requests with prefixes below half of 16,384 tokens, each with 1,024 new ones."""
    draw = Draw("upstream-extend")
    prefixes = tuple(1 + draw.below(16_384 // 2 - 1) for _ in range(32))
    spec = Extend(
        query_heads=6,
        kv_heads=1,
        head_dim=128,
        value_dim=128,
        dtype=dtype,
        prefixes=prefixes,
        lengths=(1024,) * 32,
        upstream=True,
        seed=SEED,
    )
    return "b32-n16384-hq6-hkv1-d128", spec


def prefill(size: int, length: int, causal: bool, dtype: Dtype) -> tuple[str, Prefill]:
    """One prompt on four query heads and one KV head."""
    spec = Prefill(
        query_heads=4,
        kv_heads=1,
        head_dim=size,
        value_dim=size,
        dtype=dtype,
        lengths=(length,),
        causal=causal,
        upstream=True,
        seed=SEED,
    )
    return f"d{size}-s{length}-{'causal' if causal else 'full'}", spec
