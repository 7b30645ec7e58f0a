"""What a run recorded of texts that are not the reference's: judged again, and told."""

from dataclasses import dataclass

from pydantic import JsonValue, TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kit.errors import UsageFault
from kit.measurement import Record
from kit.oracles.triage import Choice, Departure, Judgement, TextDifference, Verdict, judge
from kit.results.model import CaseResult
from kit.results.text import number, one_line, printable


class _Told(Record):
    """A row of the evidence ``triage``."""

    row: str
    verdict: Verdict
    reason: str


_TOLD = TypeAdapter(tuple[_Told, ...])
_FOUND = TypeAdapter(tuple[TextDifference, ...])


@dataclass(frozen=True)
class Triaged:
    """One row: what was recorded, and what follows from it now. `recorded` is the verdict that the run gave."""

    found: TextDifference
    judged: Judgement
    recorded: Verdict

    @property
    def is_sound(self) -> bool:
        """No fault of the subject, and judged as it was recorded."""
        return self.judged.verdict is not Verdict.FAULT and self.judged.verdict is self.recorded


def triage_of(case: CaseResult) -> tuple[Triaged, ...]:
    """Every differing text of a case, judged again; empty where no text differs.

    Raises:
        UsageFault: the case compares no texts, or its record is damaged.
    """
    evidence = case.evidence
    if "texts_compared" not in evidence:
        raise UsageFault(f"{case.id} ({case.status}) has compared no texts", "name a case that ends in '-text'")
    try:
        told = _TOLD.validate_python(evidence.get("triage", ()))
        found = _FOUND.validate_python(evidence.get("text_differences", ()))
        if [one.row for one in told] != [one.row for one in found]:
            raise ValueError("verdicts and differences are not of the same rows")
    except ValueError as error:
        why = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise UsageFault(
            f"{case.id}: what it recorded cannot be judged: {one_line(why)}", "run the case again"
        ) from None
    return tuple(Triaged(one, judge(one), before.verdict) for one, before in zip(found, told, strict=True))


def verdict_lines(case: CaseResult) -> list[str]:
    """One line for each differing text of a case, as recorded; empty where there is none, or none that can be read."""
    value: JsonValue = case.evidence.get("triage")
    try:
        told = _TOLD.validate_python(value or ())
    except ValidationError:
        return []
    return [one_line(f"{one.row}: {one.verdict}: {one.reason}") for one in told]


def print_triage(case: CaseResult, triaged: tuple[Triaged, ...], console: Console) -> None:
    """The verdicts with the table that they follow from."""

    def say(text: str, style: str = "") -> None:
        console.print(Text(printable(text), style=style), soft_wrap=True)

    compared = case.evidence.get("texts_compared")
    say(f"{case.id}: {len(triaged)} of {compared} texts are not the reference's")
    for one in triaged:
        say(f"\n{one.found.row}: {one.judged.verdict}", "bold" if one.is_sound else "bold red")
        say(f"  {one.judged.reason}")
        if one.judged.verdict is not one.recorded:
            say(f"  the run itself says '{one.recorded}', which does not follow from what it recorded", "bold red")
        noise = one.found.noise
        error = "no oracle" if noise.oracle is None else f"error to the oracle {number(noise.oracle)}"
        say(
            f"  noise floor {number(noise.floor)} nat: change with the batch size {number(noise.batch)}, {error}, "
            f"one unit {number(noise.unit)}"
        )
        for variant in one.found.variants:
            same = ", the subject's text" if variant.tokens == one.found.subject else ""
            say(f"  reference in batches of {_sizes(variant.sizes)}: {_around(one.found, variant.tokens)}{same}")
        say(f"  subject: {_around(one.found, one.found.subject)}")
        console.print(_table(one.found))


def _sizes(sizes: tuple[int, ...]) -> str:
    whole = len(sizes) > 2 and sizes[-1] - sizes[0] == len(sizes) - 1
    return f"{sizes[0]} to {sizes[-1]}" if whole else ", ".join(map(str, sizes))


def _around(found: TextDifference, tokens: tuple[int, ...]) -> str:
    """The tokens from just before the first difference on."""
    start = max(0, found.departures[0].position - 2)
    shown = " ".join(map(str, tokens[start : start + 8]))
    return f"{'… ' if start else ''}{shown}{' …' if len(tokens) > start + 8 else ''}"


def _table(found: TextDifference) -> Table:
    table = Table(box=None, pad_edge=True, padding=(0, 1))
    for name in ("token", "asked", "subject's", "reference's", "gap, nat", "best", "second"):
        table.add_column(name, justify="right" if name in ("token", "gap, nat") else "left")
    for departure in found.departures:
        for place, opinion in enumerate(departure.opinions):
            table.add_row(
                str(departure.position) if place == 0 else "",
                opinion.who,
                _candidate(departure.subject, departure.subject_text, opinion.subject),
                _candidate(departure.reference, departure.reference_text, opinion.reference),
                number(opinion.gap),
                _choice(opinion.best, departure),
                _choice(opinion.second, departure),
            )
    return table


def _choice(choice: Choice, departure: Departure) -> Text:
    texts = {departure.subject: departure.subject_text, departure.reference: departure.reference_text}
    return _candidate(choice.token, texts.get(choice.token, ""), choice.logprob)


def _candidate(token: int, text: str, logprob: float) -> Text:
    shown = "" if text in ("", str(token)) else f" {text!r}"
    return Text(printable(f"{token}{shown} {logprob:.6g}"))
