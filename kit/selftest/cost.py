"""What a case costs, roughly, so that the cheapest are asked."""

from kit.check_spec import (
    AdapterLife,
    BatchInvariance,
    BatchText,
    CachedIdentities,
    CacheReuse,
    CheckSpec,
    DecodeLogprobs,
    FirstRequests,
    GivenPrompt,
    MixedBatches,
    PromptLogprobs,
    Repeatability,
)
from kit.faults.asked import asked

_OF_A_STEP = 20.0
"""What a step of decode costs, in tokens of a prompt."""
_OF_IDENTITIES = 40.0
"""How often a prompt is computed by a case about caches, or as much is generated."""


def cost(spec: CheckSpec) -> float:
    """About how many tokens are computed; only an order follows from it."""
    match spec:
        case PromptLogprobs(prompt_lengths=lengths):
            return _OF_A_STEP * len(lengths) + sum(lengths)
        case MixedBatches() | BatchInvariance() | AdapterLife() | FirstRequests():
            return 2.0 * sum(batch.tokens + _OF_A_STEP * sum(row.new for row in batch.rows) for batch in asked(spec))
        case DecodeLogprobs(prompt_length=length, new_tokens=new) | CacheReuse(prompt_length=length, new_tokens=new):
            return length + _OF_A_STEP * new
        case Repeatability(prompt_length=length, new_tokens=new, times=times):
            return times * (length + _OF_A_STEP * new)
        case BatchText(batches=batches, prompt_lengths=lengths, new_tokens=new):
            return len(batches) * (sum(lengths) + 5.0 * _OF_A_STEP * new)
        case GivenPrompt(tokens=tokens):
            return _OF_A_STEP + len(tokens)
        case CachedIdentities(prompt_length=length):
            return _OF_IDENTITIES * length
        case _:
            heads, lengths = getattr(spec, "query_heads", 1), getattr(spec, "lengths", (1000,))
            return float(heads * sum(lengths))
