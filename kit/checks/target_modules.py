"""Which modules SGLang finds for an adapter that targets all linear ones. Upstream's second test; no model runs, no GPU is used.

A renamed class or module would leave an adapter's part out without a word. The tree has the names of Qwen3's modules, and its
leaves are SGLang's own classes, built without weights.
"""

from typing import Any

from kit.checks.outcome import CheckResult, NotApplicable
from kit.oracles import limits

EXPECTED = frozenset({"qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head"})
"""test_auto_detect_lora_target_modules of SGLang's test_lora_qwen3_8b_logprob_diff.py. A plain embedding is none of them."""


def check() -> CheckResult:
    """Both directions must be empty: what is not found, and what is found and should not be.

    Raises:
        NotApplicable: this SGLang has no such function, or not these classes.
    """
    try:
        from sglang.srt.lora.utils import auto_detect_lora_target_modules

        tree = qwen3_tree()
    except ImportError as error:
        raise NotApplicable(f"this SGLang has not what upstream's test of target modules needs: {error}") from None
    found = set(auto_detect_lora_target_modules(tree))
    return CheckResult(
        (
            limits.exactly_none("modules_not_found", len(EXPECTED - found), "of those that upstream expects"),
            limits.exactly_none("modules_too_many", len(found - EXPECTED), "beyond those that upstream expects"),
        ),
        {"found": [*sorted(found)], "expected": [*sorted(EXPECTED)]},
    )


def qwen3_tree() -> Any:
    """A module tree with one layer of Qwen3, without weights.

    Raises:
        ImportError: SGLang has not the classes that its Qwen3 is made of.
    """
    from sglang.srt.layers.linear import MergedColumnParallelLinear, QKVParallelLinear, RowParallelLinear
    from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead
    from torch import nn

    def bare(kind: Any) -> Any:
        module = kind.__new__(kind)
        nn.Module.__init__(module)
        return module

    def named(**children: Any) -> Any:
        module = nn.Module()
        for name, child in children.items():
            module.add_module(name, child)
        return module

    layer = named(
        self_attn=named(qkv_proj=bare(QKVParallelLinear), o_proj=bare(RowParallelLinear)),
        mlp=named(gate_up_proj=bare(MergedColumnParallelLinear), down_proj=bare(RowParallelLinear)),
    )
    model = named(embed_tokens=nn.Embedding(8, 8), layers=nn.ModuleList([layer]))
    return named(model=model, lm_head=bare(ParallelLMHead))
