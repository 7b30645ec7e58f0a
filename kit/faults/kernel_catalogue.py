"""Which faults of attention kernels can be injected, and which cases must see them. Data only; `kit.faults.kernels` acts."""

from collections.abc import Callable

from kit.attention_spec import AttentionSpec, Cached, Extend, GroupedDecode, Prefill
from kit.faults.kind import FaultKind, Where


def _fault(name: str, where: Where, effect: str, report: str | None = None) -> FaultKind:
    return FaultKind(name, effect, where, "kernels", report)


KERNEL_FAULTS: tuple[FaultKind, ...] = (
    _fault(
        "kernel-mask-off-by-one",
        "kernel indexing",
        "decode leaves out the last token; extend and prefill see one token of the future",
    ),
    _fault(
        "kernel-wrong-group",
        "kernel indexing",
        "query heads of the second group read the first KV head",
        "HazyResearch/HipKittens#22",
    ),
    _fault(
        "kernel-empty-split",
        "workspace",
        "decode merges splits that hold no token, so it reads a workspace that nobody wrote",
        "pegainfer-project/pegainfer#21",
    ),
    _fault(
        "kernel-workspace-unwritten",
        "workspace",
        "decode does not write the weight of its first split",
        "sgl-project/sglang#10330",
    ),
    _fault(
        "kernel-cap-dropped", "kernel arithmetic", "decode and extend do not cap scores", "sgl-project/sglang#33915"
    ),
    _fault(
        "kernel-last-block-dropped",
        "kernel indexing",
        "decode leaves out the last, partial block of keys, extend that of the prefix",
        "sgl-project/sglang#34580",
    ),
    FaultKind(
        "kernel-one-head-scaled",
        "decode multiplies the answer of query head 37",
        "kernel arithmetic",
        "kernels",
        "fla-org/flash-linear-attention#1029",
        "factor",
        neutral=1.0,
        reported=1.05,
    ),
    _fault(
        "kernel-scale-one-over-size",
        "kernel arithmetic",
        "scores are divided by the size of a head instead of its root",
    ),
    _fault("kernel-window-one-short", "kernel indexing", "a sliding window ends one position too early"),
    _fault(
        "kernel-pages-16-bits", "kernel indexing", "slots of the cache are cut to 16 bits", "vllm-project/vllm#50427"
    ),
    _fault(
        "kernel-head-dim-cut",
        "kernel indexing",
        "of the entries of a head the first 64 are read, and no more",
        "sgl-project/sglang#1159",
    ),
    _fault(
        "kernel-merge-not-rescaled",
        "kernel arithmetic",
        "decode does not rescale the splits merged so far when a later one has a larger score",
        "sgl-project/sglang#2465",
    ),
    _fault(
        "kernel-split-weight-without-sum",
        "kernel arithmetic",
        "decode merges splits by their largest scores alone",
        "vllm-project/vllm#49294",
    ),
    _fault(
        "kernel-offsets-32-bits",
        "kernel indexing",
        "where a key lies in the cache is counted in 32 bits",
        "vllm-project/vllm#47671",
    ),
    _fault(
        "kernel-pages-contiguous",
        "kernel indexing",
        "the slots of a request are taken to follow its first one",
        "hw-native-sys/pypto#470",
    ),
    _fault("kernel-window-dropped", "kernel indexing", "extend has no sliding window", "sgl-project/sglang#4823"),
)
SCALED_HEAD = 37
_SPLIT = 32
"""Fewest tokens of a split, and the tokens of a block in decode."""
_TELLING = ("random", "revealing")


def _mask(spec: AttentionSpec) -> bool:
    if spec.content not in _TELLING:
        return False
    if isinstance(spec, GroupedDecode):
        return True
    masked = isinstance(spec, Extend) and spec.tree_mask
    return spec.causal and not masked and max(spec.lengths) > 1


def _group(spec: AttentionSpec) -> bool:
    return spec.kv_heads > 1 and spec.content in ("random", "constant")


def _empty_split(spec: AttentionSpec) -> bool:
    if not isinstance(spec, GroupedDecode):
        return False
    longest = max(spec.num_kv_splits)
    return len(spec.num_kv_splits) == 1 and min(spec.lengths) <= _SPLIT * (longest - 1)


def _cap(spec: AttentionSpec) -> bool:
    """Scores of standard deviation 8; where one position dominates, it does so with and without a cap."""
    if isinstance(spec, Prefill) or spec.content != "large":
        return False
    return 0.0 < spec.logit_cap <= 8.0 and min(spec.lengths) > 2


def _last_block(spec: AttentionSpec) -> bool:
    return isinstance(spec, GroupedDecode) and spec.window is None and min(spec.lengths) < 8


def _head(spec: AttentionSpec) -> bool:
    return isinstance(spec, GroupedDecode) and spec.query_heads > SCALED_HEAD and spec.content in ("random", "constant")


def _scale(spec: AttentionSpec) -> bool:
    return spec.content == "large" and not spec.logit_cap and min(spec.lengths) > 2


def _window(spec: AttentionSpec) -> bool:
    reach = _longest(spec)
    return spec.window is not None and spec.window > 1 and reach > spec.window + 1 and spec.content == "revealing"


def _pages(spec: AttentionSpec) -> bool:
    if not (isinstance(spec, Cached) and spec.pages == "beyond-16-bits" and spec.content == "random"):
        return False
    return isinstance(spec, GroupedDecode) or (isinstance(spec, Extend) and min(spec.prefixes) > 1)


def _head_dim(spec: AttentionSpec) -> bool:
    return spec.head_dim > 64 and spec.content == "random"


def _splits(spec: AttentionSpec) -> bool:
    """Some request has several splits with tokens."""
    if not isinstance(spec, GroupedDecode) or spec.content != "random":
        return False
    most = max(spec.num_kv_splits) if len(spec.num_kv_splits) == 1 else min(spec.num_kv_splits)
    return most > 1 and max(spec.lengths) > _SPLIT


def _merged(spec: AttentionSpec) -> bool:
    """The second split has as many tokens as the first, and heads are enough that some has its largest score there."""
    if not isinstance(spec, GroupedDecode) or not _splits(spec):
        return False
    shortest, splits = min(spec.lengths), min(spec.num_kv_splits)
    first = -(-shortest // (splits * _SPLIT)) * _SPLIT
    return shortest >= 2 * first and spec.query_heads * len(spec.lengths) >= 16


def _offsets(spec: AttentionSpec) -> bool:
    return isinstance(spec, Cached) and spec.first_slot * spec.kv_heads * spec.head_dim >= 2**32


def _contiguous(spec: AttentionSpec) -> bool:
    if not isinstance(spec, Cached) or spec.pages != "shuffled" or spec.page_size > 1 or spec.content != "random":
        return False
    return max(spec.prefixes if isinstance(spec, Extend) else spec.lengths) > 4 and spec.window is None


def _window_of_extend(spec: AttentionSpec) -> bool:
    return isinstance(spec, Extend) and _window(spec)


def _longest(spec: AttentionSpec) -> int:
    before = spec.prefixes if isinstance(spec, Extend) else (0,) * len(spec.lengths)
    return max(b + n for b, n in zip(before, spec.lengths, strict=True))


_SEEN: dict[str, Callable[[AttentionSpec], bool]] = {
    "kernel-mask-off-by-one": _mask,
    "kernel-wrong-group": _group,
    "kernel-empty-split": _empty_split,
    "kernel-workspace-unwritten": lambda spec: isinstance(spec, GroupedDecode),
    "kernel-cap-dropped": _cap,
    "kernel-last-block-dropped": _last_block,
    "kernel-one-head-scaled": _head,
    "kernel-scale-one-over-size": _scale,
    "kernel-window-one-short": _window,
    "kernel-pages-16-bits": _pages,
    "kernel-head-dim-cut": _head_dim,
    "kernel-merge-not-rescaled": _merged,
    "kernel-split-weight-without-sum": _splits,
    "kernel-offsets-32-bits": _offsets,
    "kernel-pages-contiguous": _contiguous,
    "kernel-window-dropped": _window_of_extend,
}


def must_see(fault: str, spec: AttentionSpec) -> bool:
    """Whether a case must be red under a fault. Others may be red too: these are those whose inputs cannot hide it."""
    return fault in _SEEN and _SEEN[fault](spec)
