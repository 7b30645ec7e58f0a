"""Whose values came back: what stood under the name before, what stands under another, or the own with a fault."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from kit.checks.logprobs import Compared
from kit.checks.outcome import shown
from kit.oracles.hypotheses import CLEARLY_BETTER, Answered, Tried, explain
from kit.oracles.layers import NO_ADAPTER, Adapter, LowRank
from kit.oracles.metrics import mean_half_square
from kit.oracles.reference import LogprobOracle

_TOLD = 5
_EMBEDDING, _OUTPUT = "model.embed_tokens", "lm_head"


@dataclass(frozen=True)
class Held:
    """What was and is loaded when an answer was wrong.

    Attributes:
        label: what the oracle knows the right weights as; None for the base model.
        before: weights that stood under the same name earlier, and the operation that loaded them.
        under: weights that stand under other names, and these names.
    """

    label: str | None
    before: Mapping[str, int]
    under: Mapping[str, str]


def told_of(oracle: LogprobOracle, compared: Compared, held: Held) -> dict[str, JsonValue]:
    """Evidence ``says`` and ``likeliest``: faults with the mean ½Δ² that each leaves, nat². Computed once: these are no verdict."""
    own = mean_half_square(compared.served, compared.oracle)
    tried = sorted(_tried(oracle, compared, held), key=lambda fault: fault.residual)
    best = tried[0] if tried else None
    likeliest: list[JsonValue] = [
        {"fault": fault.fault, "mean_half_square": shown(fault.residual)} for fault in tried[:_TOLD]
    ]
    explained = best is not None and best.residual * CLEARLY_BETTER <= own
    says = f"The values are those of: {best.fault}." if best and explained else _of_its_own(oracle, compared, held)
    return {"says": says, "right": shown(own), "likeliest": likeliest}


def _tried(oracle: LogprobOracle, compared: Compared, held: Held) -> Iterator[Tried]:
    """Every other content that the oracle knows, and the own one with what another has on modules that it leaves alone."""
    own = _adapter(oracle, held.label)

    def residual(adapter: Adapter) -> float:
        values = oracle.supposing(adapter, compared.prompts[0])[compared.starts[0] - 1 :]
        return mean_half_square(compared.served, values)

    if held.label is not None:
        yield Tried("the base model, as if no adapter were there", residual(NO_ADAPTER))
    for label, other in oracle.adapters.items():
        if label == held.label:
            continue
        yield Tried(f"{label}{_known_as(label, held)}", residual(other))
        for left in _left_over(own, other):
            modules = ", ".join(sorted({name.rpartition(".")[2] for name in left}))
            yield Tried(f"the own weights, and what stayed of {label} on {modules}", residual({**left, **own}))


def _left_over(own: Adapter, other: Adapter) -> Iterator[Adapter]:
    """What another adapter may have left in a slot: all that the own one has not, or of these the embedding or the output alone.

    A slot is used with the rank and the scaling of who has it now, so only the first components count; those are tried too.
    """
    more = {name: low for name, low in other.items() if name not in own}
    parts = [more, *({name: more[name]} for name in (_EMBEDDING, _OUTPUT) if name in more and len(more) > 1)]
    tenant = next(iter(own.values()), None)
    for part in parts:
        if not part:
            continue
        yield part
        if tenant is not None:
            rank, scaling = tenant.a.shape[0], tenant.scaling
            yield {name: LowRank(low.a[:rank], low.b[:, :rank], scaling) for name, low in part.items()}


def _known_as(label: str, held: Held) -> str:
    if label in held.before:
        return f", which stood under this name before (operation {held.before[label]})"
    return f", which stands under {held.under[label]}" if label in held.under else ""


def _of_its_own(oracle: LogprobOracle, compared: Compared, held: Held) -> str:
    answered = Answered(held.label, compared.prompts, compared.starts, compared.served, compared.permitted.limit or 0.0)
    found = explain(oracle, answered)
    return found.sentence if found else "Too few values to tell, or not finite."


def _adapter(oracle: LogprobOracle, label: str | None) -> Adapter:
    return NO_ADAPTER if label is None else oracle.adapters[label]
