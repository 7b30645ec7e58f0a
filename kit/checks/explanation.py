"""A red case explains itself: which known fault its values are like (`kit.oracles.hypotheses`)."""

from pydantic import JsonValue

from kit.checks.logprobs import Compared
from kit.checks.outcome import shown
from kit.oracles.hypotheses import Answered, explain
from kit.subjects.sglang_engine import SGLangSubject

_TOLD = 5


def explanation(subject: SGLangSubject, compared: Compared, identity: str | None) -> dict[str, JsonValue]:
    """Evidence ``explanation`` of a comparison that is outside its limits; empty for one within, which costs nothing,
    and in a self-test, where the fault is known.

    Attributes of the evidence:
        says: one sentence. right: mean ½Δ² to the right model, nat².
        likeliest: the faults that leave least, each with the mean ½Δ² that it leaves, nat².
    """
    if not subject.explains or (compared.permitted.within and compared.largest_error.within):
        return {}
    answered = Answered(
        identity=identity,
        prompts=compared.prompts,
        starts=compared.starts,
        served=compared.served,
        permitted=compared.permitted.limit or 0.0,
    )
    found = explain(subject.oracle, answered)
    if found is None:
        return {}
    tried = sorted((*found.tried, *([found.fitted] if found.fitted else [])), key=lambda fault: fault.residual)
    told: list[JsonValue] = [
        {"fault": fault.fault, "mean_half_square": shown(fault.residual)} for fault in tried[:_TOLD]
    ]
    return {"explanation": {"says": found.sentence, "right": shown(found.right), "likeliest": told}}
