"""The faults that act inside SGLang's processes. Data only; `kit.faults.engine` acts, `kit.faults.engine_seen` says who must see them."""

from typing import Final

from kit.faults.kind import FaultKind, Where


def _fault(name: str, where: Where, effect: str, report: str | None = None) -> FaultKind:
    return FaultKind(name, effect, where, "engine", report)


def _strong(
    name: str, where: Where, effect: str, report: str | None, means: str, neutral: float, reported: float
) -> FaultKind:
    return FaultKind(name, effect, where, "engine", report, means, neutral, reported)


ENGINE_FAULTS: Final[tuple[FaultKind, ...]] = (
    _fault(
        "batch-slot-zero",
        "request routing",
        "in a batch of more than 64 tokens every row is served from slot 0",
        "sgl-project/sglang#28091",
    ),
    _fault(
        "batch-first-row-for-all",
        "batching",
        "in a batch of more than 64 tokens every row gets the first row's adapter",
        "sgl-project/sglang#28091",
    ),
    _fault(
        "batch-rows-permuted",
        "request routing",
        "every row gets the adapter of the next row",
        "vllm-project/vllm#17766",
    ),
    _fault(
        "batch-last-two-exchanged",
        "request routing",
        "the last two rows of a batch get each other's adapter",
        "vllm-project/vllm#17766",
    ),
    _fault(
        "batch-adapters-of-previous",
        "batching",
        "a batch is served with the adapters of the batch before",
        "sgl-project/sglang#5897",
    ),
    _fault("batch-third-adapter-skipped", "batching", "of more than two adapters in a batch the last one is left out"),
    _fault(
        "batch-base-adapted",
        "request routing",
        "rows of the base model get the first adapter of their batch",
        "NVIDIA/TensorRT-LLM#2096",
    ),
    _fault(
        "batch-scaling-of-first",
        "batching",
        "every adapter of a batch is scaled as its first one is",
        "sgl-project/sglang#28091",
    ),
    _fault(
        "batch-smallest-rank",
        "batching",
        "every adapter of a batch is read with the smallest rank among them",
        "predibase/lorax#70",
    ),
    _fault("batch-rows-beyond-eight", "batching", "rows after the eighth get no adapter", "sgl-project/sglang#29157"),
    _strong(
        "batch-now-and-then",
        "workspace",
        "in every seventh batch adapters are scaled",
        "sgl-project/sglang#31870",
        "factor of the scaling",
        1.0,
        1.05,
    ),
    _strong(
        "batch-scaling",
        "kernel arithmetic",
        "the kernels of LoRA multiply every adapter's scaling",
        "sgl-project/sglang#16935",
        "factor of the scaling",
        1.0,
        2.0,
    ),
    _fault("decode-without-adapter", "decode step", "adapters act in prefill alone", "sgl-project/sglang#29157"),
    _strong(
        "decode-error-grows",
        "decode step",
        "each further token is decoded with adapters scaled further off",
        "sgl-project/sglang#26930",
        "added to the factor of the scaling per token",
        0.0,
        0.01,
    ),
    _fault(
        "decode-first-row-for-all",
        "decode step",
        "every row of a decode batch gets the first row's adapter",
        "sgl-project/sglang#29157",
    ),
    _fault(
        "chunk-without-adapter",
        "batching",
        "what follows on an earlier part of a prompt is computed without the adapter",
        "vllm-project/vllm#4995",
    ),
    _fault(
        "load-slot-not-rewritten",
        "cache",
        "a slot that another adapter had keeps the weights of that one",
        "sgl-project/sglang#29874",
    ),
    _fault(
        "load-missing-not-zeroed",
        "workspace",
        "modules that an adapter lacks keep the weights of the adapter before in its slot",
        "sgl-project/sglang#29874",
    ),
    _fault("load-last-layer-lost", "cache", "an adapter in a slot that another one had has no last layer"),
    _fault(
        "load-first-request-old",
        "cache",
        "the first batch after a load is computed with what the slot held before",
        "sgl-project/sglang#39143",
    ),
    _fault(
        "load-scaled-twice",
        "adapter weights",
        "an adapter that comes back after it was evicted has its scaling in B once more",
        "NovaSky-AI/SkyRL#2250",
    ),
    _fault(
        "load-scaled-again-by-name",
        "adapter metadata",
        "an adapter loaded under a name that was in use before is scaled twice",
        "NovaSky-AI/SkyRL#2250",
    ),
    _fault(
        "load-weights-by-name",
        "cache",
        "an adapter loaded under a name that was in use before has the weights of that one",
        "sgl-project/sglang#8263",
    ),
    _fault(
        "load-scaling-by-name",
        "adapter metadata",
        "an adapter loaded under a name that was in use before has the scaling of that one",
        "sgl-project/sglang#8263",
    ),
    _fault(
        "evict-believed-resident",
        "cache",
        "an adapter that was evicted is believed to be in its slot still",
        "vllm-project/vllm#20873",
    ),
    _fault(
        "cache-key-without-adapter",
        "cache",
        "a prompt is found in the cache whichever adapter computed it",
        "vllm-project/vllm#44250",
    ),
    _fault(
        "cache-key-adapter-or-not",
        "cache",
        "a prompt is found in the cache whichever adapter computed it, though not across adapters and base model",
        "vllm-project/vllm#30931",
    ),
    _fault(
        "positions-late-off-by-one",
        "kernel indexing",
        "from position 128 on, positions are one too high",
        "sgl-project/sglang#4823",
    ),
    _fault("decode-positions-off-by-one", "decode step", "decode counts positions one too high"),
    _fault(
        "chunk-positions-restart", "batching", "what follows on an earlier part of a prompt counts positions from 0"
    ),
    _strong(
        "logits-temperature",
        "kernel arithmetic",
        "logits are multiplied",
        None,
        "factor",
        1.0,
        1.05,
    ),
    _fault("logits-of-next-row", "kernel indexing", "each row of logits is the next one's", "sgl-project/sglang#18649"),
    _fault("logits-bfloat16", "kernel arithmetic", "logits are rounded to bfloat16", "genlm/genlm-backend#66"),
    FaultKind(
        "logits-capped",
        "logits are capped although the model has no cap",
        "kernel arithmetic",
        "engine",
        "sgl-project/sglang#33915",
        "the cap",
        neutral=0.0,
        reported=30.0,
        neutral_is_infinite=True,
    ),
    _strong(
        "logits-one-token",
        "decode step",
        "the logit of token 0 is raised, so that it comes out again and again",
        "sgl-project/sglang#29157",
        "by how much",
        0.0,
        20.0,
    ),
)
