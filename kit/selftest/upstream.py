"""Upstream's rules, held against what a self-test measured on the same answers: what they would have caught, and cried wolf about."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kit.measurement import Measurement
from kit.results.model import CaseResult
from kit.upstream_names import COSINE, DECODE, HALF_SQUARE, MAX_ABS, PREFILL, ROUGE_L

Said = Literal["caught", "passed", "cannot judge"]

_Values = Mapping[str, float]


@dataclass(frozen=True)
class Rule:
    """One rule of upstream's tests.

    Attributes:
        name: short, for a column. says: in words, with its numbers. source: the file of SGLang that has it.
        needs: measurements without which it cannot judge. keeps: whether values pass; NaN never does.
    """

    name: str
    says: str
    source: str
    needs: tuple[str, ...]
    keeps: Callable[[_Values], bool]

    def of(self, measurements: Iterable[Measurement]) -> bool | None:
        """Whether a case passes; None where the rule cannot judge it."""
        values = {m.name: m.value for m in measurements}
        if HALF_SQUARE not in values and "mean_half_square" in values:
            values[HALF_SQUARE] = values["mean_half_square"]
        return self.keeps(values) if all(name in values for name in self.needs) else None


_LORA_UTILS = "test/lora_utils.py"

RULES: Final = (
    Rule(
        "½Δ²",
        "mean ½Δ² ≤ 5e-3 on one prompt",
        "test_lora_*_logprob_diff.py",
        (HALF_SQUARE,),
        lambda values: values[HALF_SQUARE] <= 5e-3,
    ),
    Rule(
        "top-5 prefill 0.1",
        "the five largest logprobs of a prompt up to 100 tokens, without ids, within 0.1",
        _LORA_UTILS,
        (PREFILL,),
        lambda values: values[PREFILL] < 0.1,
    ),
    Rule("top-5 prefill 0.3", "the same within 0.3", _LORA_UTILS, (PREFILL,), lambda values: values[PREFILL] < 0.3),
    Rule(
        "top-5 decode 0.1",
        "the five largest logprobs of up to 100 generated tokens, without ids, within 0.1",
        _LORA_UTILS,
        (DECODE,),
        lambda values: values[DECODE] < 0.1,
    ),
    Rule("ROUGE-L 1", "ROUGE-L of greedy texts = 1", _LORA_UTILS, (ROUGE_L,), lambda values: values[ROUGE_L] >= 1.0),
    Rule(
        "ROUGE-L 0.9",
        "ROUGE-L of greedy texts ≥ 0.9, as on AMD's machines",
        _LORA_UTILS,
        (ROUGE_L,),
        lambda values: values[ROUGE_L] >= 0.9,
    ),
    Rule(
        "kernels",
        "cosine > 0.99 and |Δ| ≤ 3e-2 to a second kernel of the same dtype",
        "test_wave_attention_kernels.py",
        (COSINE, MAX_ABS),
        lambda values: values[COSINE] > 0.99 and values[MAX_ABS] <= 3e-2,
    ),
)


def said_of(cases: Sequence[CaseResult]) -> dict[str, Said]:
    """What each rule says of some cases: caught where one of them does not pass it."""
    told: dict[str, Said] = {}
    for rule in RULES:
        judged = [passes for case in cases if (passes := rule.of(case.measurements)) is not None]
        told[rule.name] = "cannot judge" if not judged else "passed" if all(judged) else "caught"
    return told


def together(told: Iterable[Said]) -> Said:
    """What the rules say together: caught where one of them does."""
    said = set(told)
    return "caught" if "caught" in said else "passed" if "passed" in said else "cannot judge"


def alarms_of(cases: Sequence[CaseResult]) -> dict[str, tuple[int, int]]:
    """Per rule: of the cases without a fault, how many do not pass it, and how many it can judge."""
    counted = {}
    for rule in RULES:
        judged = [passes for case in cases if (passes := rule.of(case.measurements)) is not None]
        counted[rule.name] = (judged.count(False), len(judged))
    return counted
