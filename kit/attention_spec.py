"""What an attention case asks of a kernel: plain data, made on the host, read by the worker."""

from typing import Literal, Self

from pydantic import Field, model_validator

from kit.measurement import Record

Content = Literal["random", "large", "equal", "dominant", "constant", "revealing"]
"""What queries, keys and values hold (`kit.synthetic.attention`):

- ``random``: entries of standard deviation 1. ``large``: queries eight times as large, so that few positions count.
- ``equal``: every key is the same, so the answer is the mean of the values.
- ``dominant``: one position outweighs all others by e**20.
- ``constant``: the values of a KV head are one number, which must come back.
- ``revealing``: all scores are 0 and the values are one-hot, so the answer says which positions were counted.
"""

PageOrder = Literal["shuffled", "ascending", "descending", "interleaved", "beyond-16-bits"]
"""Where the tokens of the requests lie in the cache; ``beyond-16-bits`` is shuffled, in slots above 65,535."""

Dtype = Literal["float16", "bfloat16"]


class Attention(Record):
    """What every kind of attention case has.

    Attributes:
        query_heads, kv_heads: query_heads is a multiple of kv_heads.
        head_dim, value_dim: sizes of a key and of a value vector.
        logit_cap: scores s become cap·tanh(s / cap); 0 is no cap.
        sinks: every query head has a score that takes part in the softmax and has no value.
        window: how many positions before its own a query sees; None is all. SGLang's kernels read 0 as no window, and its
            callers never have it.
        temperature_length: as Grok's ``attn_temperature_len`` n: scores of queries at positions p > n are multiplied by
            log p / log n; None is never.
        upstream: also hold the answer against the constants of the upstream test.
        seed: of all inputs.
    """

    query_heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    value_dim: int = Field(ge=1)
    dtype: Dtype = "float16"
    content: Content = "random"
    logit_cap: float = Field(default=0.0, ge=0.0)
    sinks: bool = False
    window: int | None = Field(default=None, ge=1)
    temperature_length: int | None = Field(default=None, ge=2)
    upstream: bool = False
    seed: int = 42

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        if self.query_heads % self.kv_heads:
            raise ValueError(f"{self.query_heads} query heads do not share {self.kv_heads} KV heads evenly")
        return self


class Cached(Attention):
    """Attention over a cache that is found through a page table.

    Attributes:
        pages: order of the tokens' slots. page_size: slots that lie together, in order.
        first_slot: the slots lie so far into a larger cache, where offsets into it need more bits. Only they are filled; what lies
            around them is poison, and so are the first slots of that cache, where an offset ends that was cut to 32 bits.
    """

    pages: PageOrder = "shuffled"
    page_size: int = Field(default=1, ge=1)
    first_slot: int = Field(default=0, ge=0)

    @property
    def far(self) -> bool:
        """Whether the cache is larger than what is filled of it."""
        return self.first_slot > 0


class GroupedDecode(Cached):
    """One new token per request over its cached tokens, itself included.

    Attributes:
        lengths: cached tokens of each request.
        max_kv_splits: size of the workspace. num_kv_splits: splits of each request, or one number for all.
        dispatch: let the library choose its kernel by shape, as an engine does; else the kernel for grouped heads.
        engine_window: let the engine's own code choose the slots of the window, instead of the case.
    """

    check: Literal["grouped-decode"] = "grouped-decode"
    lengths: tuple[int, ...] = Field(min_length=1)
    max_kv_splits: int = 8
    num_kv_splits: tuple[int, ...] = (4,)
    dispatch: bool = False
    engine_window: bool = False


class Extend(Cached):
    """New tokens of each request over its cached prefix and over each other.

    Attributes:
        prefixes: cached tokens of each request, 0 or more. lengths: its new tokens.
        causal: a new token sees no later one.
        tree_mask: a new token sees only some of the earlier new ones, and itself, as when a tree of drafts is verified.
        unified: the one-pass kernel of deterministic inference, which reads new tokens from the cache too.
    """

    check: Literal["extend"] = "extend"
    prefixes: tuple[int, ...] = Field(min_length=1)
    lengths: tuple[int, ...] = Field(min_length=1)
    causal: bool = True
    tree_mask: bool = False
    unified: bool = False


class Prefill(Attention):
    """Whole prompts, without a cache.

    Attributes:
        lengths: tokens of each request. causal: a token sees no later one.
    """

    check: Literal["prefill"] = "prefill"
    lengths: tuple[int, ...] = Field(min_length=1)
    causal: bool = True


AttentionSpec = GroupedDecode | Extend | Prefill
