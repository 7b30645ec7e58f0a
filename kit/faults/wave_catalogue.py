"""Which faults of Wave's kernels can be injected, and which executions of their MLIR must see them. Data; `kit.faults.wave` acts."""

from collections.abc import Callable
from typing import Final

from kit.attention_spec import AttentionSpec, Extend, GroupedDecode, Prefill
from kit.faults.kind import FaultKind, Where
from kit.offline_spec import ExecuteMlir


def _fault(name: str, where: Where, effect: str, report: str | None = None) -> FaultKind:
    return FaultKind(name, effect, where, "kernels", report)


WAVE_FAULTS: Final[tuple[FaultKind, ...]] = (
    _fault(
        "wave-mask-off-by-one",
        "kernel indexing",
        "the mask of scores lets one position more through than a request or a split has",
    ),
    _fault("wave-causal-mask-strict", "kernel indexing", "in extend, new tokens do not see themselves"),
    _fault(
        "wave-last-block-dropped",
        "kernel indexing",
        "the number of blocks of keys is rounded down, so that a partial block is left out",
        "sgl-project/sglang#34580",
    ),
    FaultKind(
        "wave-scores-scaled",
        "decode and extend multiply scores by a factor",
        "kernel arithmetic",
        "kernels",
        None,
        "factor",
        neutral=1.0,
        reported=1.01,
    ),
    _fault(
        "wave-exponent-natural",
        "kernel arithmetic",
        "scores are not multiplied by log2 e, although exp2 is taken of them",
    ),
    _fault(
        "wave-rescale-dropped",
        "kernel arithmetic",
        "what was summed is not rescaled when the running maximum grows",
    ),
    _fault("wave-sum-restarted", "kernel arithmetic", "the sum of weights forgets what was before the last block"),
    _fault(
        "wave-lanes-left-out",
        "kernel arithmetic",
        "a sum over a wave of 64 is made as for 32 lanes",
        "vllm-project/vllm#3262",
    ),
    _fault(
        "wave-operands-swapped",
        "kernel arithmetic",
        "the last matrix product of values and weights takes its operands the other way round",
        "iree-org/wave#192",
    ),
    _fault(
        "wave-guard-inside",
        "kernel indexing",
        "the index that masked loads and stores take lies where the buffer descriptor does not refuse it",
        "vllm-project/vllm#48043",
    ),
    _fault(
        "wave-load-unmasked",
        "kernel indexing",
        "prefill loads keys and values behind the end of a prompt",
        "vllm-project/vllm#30887",
    ),
    _fault(
        "wave-split-rounded-down",
        "kernel indexing",
        "the length of decode's splits is rounded down, so that the last tokens are in none",
        "sgl-project/sglang#2465",
    ),
    _fault(
        "wave-empty-split",
        "workspace",
        "decode merges splits that hold no token, and whose workspace nobody wrote",
        "pegainfer-project/pegainfer#21",
    ),
    _fault(
        "wave-split-weight-natural",
        "kernel arithmetic",
        "the weight of a split is a natural logarithm, and is merged as one to base 2",
    ),
    _fault(
        "wave-split-weight-without-sum",
        "kernel arithmetic",
        "the weight of a split is its maximum alone",
    ),
)

_BLOCK = 16
"""Keys of a block in Wave's decode."""


def _tokens(spec: GroupedDecode) -> int:
    """Of a split of the shortest request."""
    return -(-min(spec.lengths) // spec.max_kv_splits)


def _partial_block(spec: AttentionSpec) -> bool:
    """Extend and prefill have lengths that end in the middle of a block, or are whole ones (upstream's prefill)."""
    if isinstance(spec, GroupedDecode):
        return _tokens(spec) % _BLOCK > 0
    return any(length % 64 for length in spec.lengths)


def _several_tokens(spec: AttentionSpec) -> bool:
    return isinstance(spec, GroupedDecode) and _tokens(spec) > 1


def _several_blocks(spec: AttentionSpec) -> bool:
    """Of keys, or of splits that are merged."""
    return (
        isinstance(spec, GroupedDecode)
        or (isinstance(spec, Extend) and max(spec.prefixes) > 64)
        or max(spec.lengths) > 64
    )


def _scaled(spec: AttentionSpec) -> bool:
    """SGLang scales the query for prefill, not the kernel."""
    return not isinstance(spec, Prefill)


def _everywhere(spec: AttentionSpec) -> bool:
    return True


_SEEN: Final[dict[str, Callable[[AttentionSpec], bool]]] = {
    "wave-mask-off-by-one": _partial_block,
    "wave-causal-mask-strict": lambda spec: isinstance(spec, Extend),
    "wave-last-block-dropped": _partial_block,
    "wave-scores-scaled": _scaled,
    "wave-exponent-natural": _scaled,
    "wave-rescale-dropped": _several_blocks,
    "wave-sum-restarted": _several_blocks,
    "wave-lanes-left-out": _everywhere,
    "wave-operands-swapped": _everywhere,
    "wave-guard-inside": lambda spec: _scaled(spec) and _partial_block(spec),
    "wave-load-unmasked": lambda spec: isinstance(spec, Prefill) and _partial_block(spec),
    "wave-split-rounded-down": lambda spec: (
        isinstance(spec, GroupedDecode) and min(spec.lengths) % spec.max_kv_splits > 0
    ),
    "wave-empty-split": lambda spec: isinstance(spec, GroupedDecode) and min(spec.lengths) < spec.max_kv_splits,
    "wave-split-weight-natural": _several_tokens,
    "wave-split-weight-without-sum": _several_tokens,
}


def wave_must_see(fault: str, spec: ExecuteMlir) -> bool:
    """Whether an execution must be red under a fault: it is about these kernels, and its lengths cannot hide it.

    Decode with a KV head for every query head is another kernel, which multiplies no matrices: some faults find no place there.
    """
    attention = spec.attention
    if isinstance(attention, GroupedDecode) and attention.query_heads == attention.kv_heads:
        return False
    return fault in _SEEN and _SEEN[fault](attention)
