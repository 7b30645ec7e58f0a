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

_OF_A_STEP = 20.0
"""What a step of decode costs, in tokens of a prompt."""
_OF_A_LIFE = 2000.0


def cost(spec: CheckSpec) -> float:
    """About how many tokens are computed; only an order follows from it."""
    match spec:
        case PromptLogprobs(prompt_lengths=lengths):
            return _OF_A_STEP * len(lengths) + sum(lengths)
        case MixedBatches(batches=batches) | BatchInvariance(batches=batches):
            return 2.0 * sum(sum(batch.prompt_lengths) + _OF_A_STEP * sum(batch.new_tokens) for batch in batches)
        case DecodeLogprobs(prompt_length=length, new_tokens=new) | CacheReuse(prompt_length=length, new_tokens=new):
            return length + _OF_A_STEP * new
        case Repeatability(prompt_length=length, new_tokens=new, times=times):
            return times * (length + _OF_A_STEP * new)
        case BatchText(batches=batches, prompt_lengths=lengths, new_tokens=new):
            return len(batches) * (sum(lengths) + 5.0 * _OF_A_STEP * new)
        case GivenPrompt(tokens=tokens):
            return _OF_A_STEP + len(tokens)
        case AdapterLife(operations=operations, adapters=adapters):
            return _OF_A_LIFE + _OF_A_STEP * (operations + len(adapters) ** 2)
        case FirstRequests() | CachedIdentities():
            return _OF_A_LIFE
        case _:
            heads, lengths = getattr(spec, "query_heads", 1), getattr(spec, "lengths", (1000,))
            return float(heads * sum(lengths))
