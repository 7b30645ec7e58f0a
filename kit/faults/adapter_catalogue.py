"""The faults that act around the engine: on adapters, on answers and on the ranks of an all-reduce. Data only; `kit.faults.apply` acts."""

from typing import Final

from kit.faults.kind import FaultKind, Where
from kit.synthetic.catalogue import ATTENTION, JOINT_EXPERTS, MLP, MODELS


def _adapters(name: str, where: Where, effect: str, report: str | None = None) -> FaultKind:
    return FaultKind(name, f"the engine gets {effect}", where, "adapters", report)


ADAPTER_FAULTS: Final[tuple[FaultKind, ...]] = (
    FaultKind(
        "adapter-scaling",
        "the engine gets every adapter with its scaling multiplied",
        "adapter metadata",
        "adapters",
        "sgl-project/sglang#16935",
        strength_means="factor of lora_alpha",
        neutral=1.0,
        reported=2.0,
    ),
    _adapters(
        "adapter-missing",
        "adapter weights",
        "every adapter with B = 0, so that it has no effect",
        "vllm-project/vllm#34186",
    ),
    _adapters(
        "adapters-swapped", "request routing", "each adapter under the name of another", "sgl-project/sglang#8263"
    ),
    _adapters(
        "adapter-scaling-root",
        "adapter metadata",
        "every adapter scaled by alpha / √rank, or an rsLoRA by alpha / rank",
        "NVIDIA/TensorRT-LLM#1668",
    ),
    _adapters(
        "adapter-layer-dropped",
        "adapter weights",
        "every adapter with B = 0 in the last layer",
        "vllm-project/vllm#55193",
    ),
    _adapters(
        "adapter-value-dropped",
        "adapter weights",
        "every adapter with B = 0 in v_proj of layer 0",
        "sgl-project/sglang#30499",
    ),
    _adapters("adapter-query-key-swapped", "adapter weights", "every adapter with q_proj and k_proj exchanged"),
    _adapters("adapter-query-transposed", "adapter weights", "every adapter with q_proj transposed"),
    _adapters(
        "adapters-one-for-all", "request routing", "the first adapter under every name", "sgl-project/sglang#8263"
    ),
    _adapters("adapter-alpha-ignored", "adapter metadata", "every adapter with scaling 1", "sgl-project/sglang#16935"),
    _adapters(
        "adapter-rank-forgotten",
        "adapter metadata",
        "every adapter scaled by alpha instead of alpha / rank",
        "Blaizzy/mlx-vlm#845",
    ),
    _adapters("adapter-layers-exchanged", "adapter weights", "every adapter with its first and last layer exchanged"),
    _adapters("adapter-layer-repeated", "adapter weights", "every adapter with the first layer in place of the last"),
    _adapters(
        "adapter-output-dropped", "adapter weights", "every adapter with B = 0 in o_proj", "vllm-project/vllm#34186"
    ),
    _adapters(
        "adapter-down-dropped", "adapter weights", "every adapter with B = 0 in down_proj", "vllm-project/vllm#34186"
    ),
    _adapters("adapter-output-negated", "adapter weights", "every adapter with B negated in o_proj of layer 0"),
    _adapters(
        "adapter-head-dropped", "adapter weights", "every adapter with B = 0 in lm_head", "sgl-project/sglang#18649"
    ),
    _adapters("adapter-embedding-dropped", "adapter weights", "every adapter with B = 0 in embed_tokens"),
    _adapters(
        "adapter-expert-dropped",
        "adapter weights",
        "every adapter with B = 0 in expert 0",
        "NVIDIA-NeMo/Megatron-Bridge#5635",
    ),
    _adapters("adapter-gate-up-swapped", "adapter weights", "every adapter with gate_proj and up_proj exchanged"),
    _adapters(
        "adapter-query-half-lost",
        "adapter weights",
        "every adapter with B = 0 for the second half of q_proj, as where a rank takes another's slice",
        "vllm-project/vllm#45715",
    ),
    _adapters(
        "adapter-value-halves-exchanged",
        "adapter weights",
        "every adapter with the halves of B in v_proj exchanged",
        "ndif-team/nnsight#719",
    ),
    _adapters(
        "adapter-sign-flipped", "adapter weights", "every adapter with one sign of B flipped in q_proj of layer 0"
    ),
    _adapters("adapter-rank-halved", "adapter weights", "every adapter with half its rank", "predibase/lorax#70"),
    _adapters(
        "adapter-rank-interleaved",
        "adapter weights",
        "every adapter with B = 0 in every second rank",
        "vllm-project/vllm#31994",
    ),
    _adapters("adapter-rounded", "adapter weights", "every adapter rounded to four significant bits"),
    FaultKind(
        "adapter-mlp-scaling",
        "the engine gets every adapter with the scaling of its MLP's modules multiplied",
        "adapter metadata",
        "adapters",
        "huggingface/peft#3762",
        strength_means="factor of B",
        neutral=1.0,
        reported=0.25,
    ),
    FaultKind(
        "adapter-noise",
        "the engine gets every adapter with noise in B",
        "adapter weights",
        "adapters",
        strength_means="size of the noise as a part of each number",
        neutral=0.0,
        reported=0.1,
    ),
)

_LAYERS = (*ATTENTION, *MLP, *JOINT_EXPERTS)
_ALTERED: Final[dict[str, tuple[str, ...]]] = {
    "adapter-layer-dropped": _LAYERS,
    "adapter-layers-exchanged": _LAYERS,
    "adapter-layer-repeated": _LAYERS,
    "adapter-value-dropped": ("v_proj",),
    "adapter-output-dropped": ("o_proj",),
    "adapter-output-negated": ("o_proj",),
    "adapter-down-dropped": ("down_proj",),
    "adapter-mlp-scaling": MLP,
    "adapter-head-dropped": ("lm_head",),
    "adapter-embedding-dropped": ("embed_tokens",),
    "adapter-query-key-swapped": ("k_proj",),
    "adapter-gate-up-swapped": ("gate_proj",),
    "adapter-query-transposed": ("q_proj",),
    "adapter-query-half-lost": ("q_proj",),
    "adapter-value-halves-exchanged": ("v_proj",),
    "adapter-sign-flipped": ("q_proj",),
}
_IN_FLOAT32_ALONE = ("adapter-rounded", "adapter-sign-flipped")
_OF_EXPERTS = ("adapter-expert-dropped",)
"""Which need an engine of their own (`kit.batteries.sessions.OF_EXPERTS`), and tensors for each expert."""


def adapter_must_see(fault: str, subject: str, adapter: str) -> bool:
    """Whether answers under this adapter must be red under a fault of adapters: the fault alters a module that it has.

    Args:
        subject: the second part of a case's id, such as ``tiny-qwen3+bfloat16``.
    """
    model, _, variant = subject.partition("+")
    shape = next((a for a in MODELS[model].all_adapters if a.name == adapter), None) if model in MODELS else None
    if fault in _IN_FLOAT32_ALONE and (shape is None or variant in ("bfloat16", "float16")):
        return False
    if fault in _OF_EXPERTS:
        return shape is not None and set(MLP) <= set(shape.modules) and MODELS[model].experts is not None
    return shape is None or fault not in _ALTERED or not set(_ALTERED[fault]).isdisjoint(shape.modules)


ANSWER_FAULTS: Final[tuple[FaultKind, ...]] = (
    FaultKind(
        "position-shifted", "in every answer the value in the middle is that of the next position", "text", "answers"
    ),
    FaultKind("answers-in-bits", "in every answer logarithms have base 2", "text", "answers"),
    FaultKind(
        "answer-last-lost", "in every answer the last value is lost", "text", "answers", "vllm-project/vllm#39148"
    ),
    FaultKind("positions-shifted", "in every answer each value is that of the position before", "text", "answers"),
)

RANK_FAULTS: Final[tuple[FaultKind, ...]] = (
    FaultKind("rank-silent", "the last rank never takes part in an all-reduce", "process", "ranks"),
    FaultKind(
        "rank-wrong-element", "the last rank adds one wrong element to an all-reduce", "kernel arithmetic", "ranks"
    ),
)
