"""The space of attention cases that the upstream matrix leaves out, and the cases that cover it by pairs (docs/kernels.md).

A case asks only what the callers in SGLang's ``triton_backend.py`` may ask: `_decode_legal` and its neighbours say what that is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode, Prefill
from kit.synthetic.pairwise import Dimensions, Draw, covering, values_of

Kind = Literal["decode", "extend", "unified", "prefill"]
Size = Literal["full", "interpreter"]

_CONTENT = ("random", "large", "equal", "dominant", "constant", "revealing")
_PAGES = ("shuffled", "ascending", "descending", "interleaved", "beyond-16-bits")

# Tokens of a request: from the class, one is drawn for each. Blocks of the kernels end at 16, 32, 64 and 128; a split at
# multiples of 32, so that eight splits end at 256 and sixteen at 512.
_TOKENS: dict[str, tuple[int, ...]] = {
    "none": (0,),
    "one": (1,),
    "few": (2, 3, 5, 7),  # fewer than splits
    "block": (15, 16, 17, 31, 32, 33),
    "blocks": (63, 64, 65, 127, 128, 129),
    "splits": (223, 224, 225, 255, 256, 257),
    "long": (500, 511, 512, 513, 777, 1025),
    "ragged": (1, 2, 33, 64, 129, 300, 700),
}

_WIDTHS = (
    *((size, size) for size in (16, 40, 64, 72, 80, 96, 112, 128, 160, 256)),
    (192, 128),  # as in multi-head latent attention, before and after absorption
    (288, 256),
    (576, 512),
)
_RATIOS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 64, 128)
_KV_HEADS = (1, 2, 3, 4, 5, 6, 8, 16, 32)

_FULL: dict[Kind, Dimensions] = {
    "decode": {
        "ratio": _RATIOS,
        "kv_heads": _KV_HEADS,
        "widths": _WIDTHS,
        "dtype": ("float16", "bfloat16"),
        "logit_cap": (0.0, 30.0),
        "sinks": (False, True),
        "temperature": (None, 64),
        "max_splits": (8, 16),
        "page_size": (1, 16),
        "content": _CONTENT,
        "pages": _PAGES,
        "window": (None, 1, 31, 127),
        "tokens": ("one", "few", "block", "blocks", "splits", "long", "ragged"),
        "batch": (1, 2, 5, 17),
        "splits": ((1,), (2,), (3, 1, 7), (8,)),
    },
    "extend": {
        "ratio": (1, 2, 3, 4, 5, 6, 7, 8, 12, 16),
        "kv_heads": (1, 2, 3, 4, 8),
        "widths": _WIDTHS,
        "dtype": ("float16", "bfloat16"),
        "logit_cap": (0.0, 30.0),
        "sinks": (False, True),
        "temperature": (None, 64),
        "page_size": (1, 16),
        "content": _CONTENT,
        "pages": _PAGES,
        "window": (None, 1, 31, 127),
        "mask": ("causal", "tree", "none"),
        "prefix": ("none", "one", "block", "blocks", "splits", "ragged"),
        "tokens": ("one", "few", "block", "blocks", "ragged"),
        "batch": (1, 2, 5),
    },
    "prefill": {
        "ratio": (1, 2, 3, 4, 5, 6, 7, 8),
        "kv_heads": (1, 2, 3, 4),
        "widths": tuple((size, size) for size in (16, 40, 64, 72, 80, 96, 112, 128)),
        "dtype": ("float16", "bfloat16"),
        "content": _CONTENT,
        "mask": ("causal", "none"),
        "tokens": ("one", "few", "block", "blocks", "splits", "ragged"),
        "batch": (1, 2, 5),
    },
}
_FULL["unified"] = {name: values for name, values in _FULL["extend"].items() if name != "temperature"} | {
    "mask": ("causal", "none"),
    "widths": ((64, 64), (80, 80), (128, 128), (192, 128), (576, 512)),
}

_SMALL: dict[Kind, Dimensions] = {
    "decode": {
        **_FULL["decode"],
        "ratio": (1, 2, 4, 8),
        "kv_heads": (1, 2),
        "widths": ((16, 16), (24, 24), (40, 24)),
        "dtype": ("float16",),
        "max_splits": (4,),
        "window": (None, 1, 31),
        "tokens": ("one", "few", "block", "blocks", "ragged"),
        "batch": (1, 2),
        "splits": ((1,), (2, 3), (4,)),
    },
    "extend": {
        **_FULL["extend"],
        "ratio": (1, 2, 3),
        "kv_heads": (1, 2),
        "widths": ((16, 16), (24, 24), (40, 24)),
        "dtype": ("float16",),
        "window": (None, 1, 31),
        "prefix": ("none", "one", "block", "blocks"),
        "tokens": ("one", "few", "block", "blocks"),
        "batch": (1, 2),
    },
    "prefill": {
        **_FULL["prefill"],
        "ratio": (1, 2, 3),
        "kv_heads": (1, 2),
        "widths": ((16, 16), (24, 24), (40, 40)),
        "dtype": ("float16",),
        "tokens": ("one", "few", "block", "blocks"),
        "batch": (1, 2),
    },
}
_SMALL["unified"] = {name: values for name, values in _SMALL["extend"].items() if name != "temperature"} | {
    "mask": ("causal", "none")
}

SPACES: dict[Size, dict[Kind, Dimensions]] = {"full": _FULL, "interpreter": _SMALL}

COUNTS: dict[Size, dict[Kind, int]] = {
    "full": {"decode": 240, "extend": 160, "unified": 30, "prefill": 70},
    "interpreter": {"decode": 14, "extend": 14, "unified": 8, "prefill": 6},
}
"""How many cases each kernel gets: 500 on a GPU."""

_MOST_WORK: dict[Size, float] = {"full": 4e8, "interpreter": 4e6}
"""Most products of one case, new tokens × tokens × query heads × (head_dim + value_dim), so that the oracle takes about a second."""
_MOST_CACHE = 2**26
"""Most values of a cache with slots above 65,535: 256 MiB in float32."""


@dataclass(frozen=True)
class Generated:
    """A case of the space: its number, and what it asks."""

    number: int
    spec: AttentionSpec

    @property
    def name(self) -> str:
        """Number and sizes: ``017-hq12-hkv4-d80-dv80``; all else stands in the spec."""
        s = self.spec
        return f"{self.number:03}-hq{s.query_heads}-hkv{s.kv_heads}-d{s.head_dim}-dv{s.value_dim}"


@cache
def generated(kind: Kind, size: Size) -> tuple[Generated, ...]:
    """The cases of one kernel, the same on every machine."""
    dimensions = SPACES[size][kind]

    def legal(values: dict[str, Any]) -> bool:
        return _LEGAL[kind](values) and _affordable(build(kind, 0, values), size)

    choices = covering(f"attention-space/{kind}/{size}", dimensions, COUNTS[size][kind], legal)
    return tuple(
        Generated(number, build(kind, number, values_of(dimensions, choice))) for number, choice in enumerate(choices)
    )


def build(kind: Kind, number: int, values: dict[str, Any]) -> AttentionSpec:
    """The spec of one choice of values; `number` seeds lengths and inputs."""
    head_dim, value_dim = values["widths"]
    common = {
        "query_heads": values["ratio"] * values["kv_heads"],
        "kv_heads": values["kv_heads"],
        "head_dim": head_dim,
        "value_dim": value_dim,
        "dtype": values["dtype"],
        "content": values["content"],
        "seed": number,
    }
    lengths = _lengths(f"{kind}/{number}/tokens", values["tokens"], values["batch"])
    if kind == "prefill":
        return Prefill(**common, lengths=lengths, causal=values["mask"] == "causal")
    common |= {
        "logit_cap": values["logit_cap"],
        "sinks": values["sinks"],
        "temperature_length": values.get("temperature"),
        "window": values["window"],
        "pages": values["pages"],
        "page_size": values["page_size"],
    }
    if kind == "decode":
        return GroupedDecode(
            **common,
            lengths=lengths,
            max_kv_splits=values["max_splits"],
            num_kv_splits=values["splits"],
            dispatch=True,
        )
    return Extend(
        **common,
        prefixes=_lengths(f"{kind}/{number}/prefix", values["prefix"], values["batch"]),
        lengths=lengths,
        causal=values["mask"] != "none",
        tree_mask=values["mask"] == "tree",
        unified=kind == "unified",
    )


def _lengths(label: str, kind: str, batch: int) -> tuple[int, ...]:
    choice, draw = _TOKENS[kind], Draw(f"attention-space/{label}")
    return tuple(choice[draw.below(len(choice))] for _ in range(batch))


def _affordable(spec: AttentionSpec, size: Size) -> bool:
    before = spec.prefixes if isinstance(spec, Extend) else (0,) * len(spec.lengths)
    new = (1,) * len(spec.lengths) if isinstance(spec, GroupedDecode) else spec.lengths
    products = sum(n * (b + c) for n, b, c in zip(new, before, spec.lengths, strict=True))
    work = products * spec.query_heads * (spec.head_dim + spec.value_dim)
    if not isinstance(spec, Prefill) and spec.pages == "beyond-16-bits":
        cells = 2**16 * spec.kv_heads * (spec.head_dim + spec.value_dim)
        if cells > (_MOST_CACHE if size == "full" else _MOST_CACHE // 8):
            return False
    return work <= _MOST_WORK[size]


def _decode_legal(values: dict[str, Any]) -> bool:
    """At most 128 query heads. No caller has a window with a temperature: no model has both, and the window hides positions."""
    heads = int(values["ratio"]) * int(values["kv_heads"])
    return heads <= 128 and not (values["temperature"] is not None and values["window"] is not None)


def _extend_legal(values: dict[str, Any]) -> bool:
    """As for decode. Encoders alone are not causal, and they have no window."""
    if values["mask"] == "none" and values["window"] is not None:
        return False
    return values.get("temperature") is None or values["window"] is None


_LEGAL: dict[Kind, Callable[[dict[str, Any]], bool]] = {
    "decode": _decode_legal,
    "extend": _extend_legal,
    "unified": _extend_legal,
    "prefill": lambda values: True,
}
