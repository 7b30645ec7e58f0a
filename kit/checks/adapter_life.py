"""What an adapter lives through, held against the oracle after each operation (`kit.synthetic.adapter_walk`).

A program goes on after a wrong answer, which changes nothing of what is loaded, and ends where an operation does not do what it must.
The first red operation is told, and is the shortest failing beginning. However a program ends, nothing of it stays loaded. The engine
may die of an operation: that is measured, and the next case finds a fresh engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from kit.check_spec import AdapterLife
from kit.checks.logprobs import Compared, compare
from kit.checks.outcome import CheckResult
from kit.checks.rows import told_at
from kit.checks.stale import Held, told_of
from kit.measurement import Measurement
from kit.oracles import limits, metrics
from kit.oracles.metrics import Values
from kit.subjects.adapter_loading import Reply, load, unload
from kit.subjects.any_position import Question, Text, ask
from kit.subjects.engine_life import EngineDied
from kit.subjects.loaded_contents import LoadedContents
from kit.subjects.sglang_engine import SGLangSubject
from kit.synthetic.adapter_contents import CAUSES
from kit.synthetic.adapter_programs import program
from kit.synthetic.adapter_walk import (
    NEW_TOKENS,
    PROMPTS,
    Act,
    Batch,
    Content,
    Load,
    Refusal,
    Refuse,
    Reload,
    Standing,
    Step,
    Unload,
)
from kit.synthetic.prompts import prompts as seeded_prompts

_SENTENCES = 8
_NAMED = 3
"""Sentences in a measurement."""
_TOLD = 24
"""Operations since the load of a name that are told."""
_UPSTREAM = "KL_THRESHOLD of SGLang's test_lora_qwen3_8b_logprob_diff.py"


def check(spec: AdapterLife, subject: SGLangSubject) -> CheckResult:
    """Run the program; see `kit.synthetic.adapter_programs`."""
    steps = program(spec.program, spec.adapters, spec.slots, spec.seed, spec.operations)
    life = Life(spec.adapters, subject, seeded_prompts(PROMPTS, subject.vocabulary, spec.seed))
    died = False
    try:
        with subject.life.mortal(f"adapter life: {spec.program}"):
            try:
                for number, step in enumerate(steps, start=1):
                    life.take(number, step)
                    if life.broken:
                        break
            finally:
                life.leave()
    except EngineDied:
        died = True
    note = f"the engine died of operation {life.number}" if died else "the engine died"
    measurements = (limits.exactly_none("engine_deaths", int(died), note), *life.measurements(subject))
    evidence: dict[str, JsonValue] = {"operations": len(steps), "done": life.number}
    if died or life.red:
        evidence |= life.evidence(steps, died)
    return CheckResult(measurements, evidence)


@dataclass
class Life:
    """A program on a running engine, and what came of it.

    Attributes:
        number: of the operation at work, from 1. red: sentences of what was wrong in it.
        counts: of what must not be, by the name of the measurement.
        answers: all that was served, and by which operation, beside oracle and peer, with the peer's errors on every prompt of
            its identity.
        told: the sentences of `red` by the name of the measurement.
    """

    adapters: Sequence[str]
    subject: SGLangSubject
    prompts: Sequence[Sequence[int]]
    number: int = 0
    red: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    answers: list[tuple[str, Compared]] = field(default_factory=list)
    told: dict[str, list[str]] = field(default_factory=dict)
    wrong: "Wrong | None" = None

    def __post_init__(self) -> None:
        self._standing = Standing(tuple(self.adapters))
        self._contents = LoadedContents(self.subject)
        self._history: dict[str, list[tuple[int, Content]]] = {}

    def take(self, number: int, step: Step) -> None:
        """Do what the step asks, and serve what it serves."""
        self.number = number
        if step.act is not None:
            self._act(step.act)
        for batch in step.batches:
            if not self.broken:
                self._serve(batch)

    @property
    def broken(self) -> bool:
        """Whether an operation did not do what it must, so that nobody knows what is loaded."""
        return bool(self.counts.keys() & _BREAKING)

    def leave(self) -> None:
        """Unload all that the program loaded, whether it knows of it or not."""
        for name in [*self._standing.loaded, *self._contents.wrongly_loaded]:
            self.note(unload(self.subject, name), "failed_unloads", f"unload {name} at the end")

    def _act(self, act: Act) -> None:
        match act:
            case Load(name, content, pinned):
                self._load(name, content, pinned)
            case Unload(name):
                self.note(unload(self.subject, name), "failed_unloads", f"unload {name}")
            case Reload(name, content):
                self.note(unload(self.subject, name), "failed_unloads", f"unload {name}")
                self._load(name, content, False)
            case Refuse(kind, name):
                self._refuse(kind, name)
        self._standing.take(act)

    def _load(self, name: str, content: Content, pinned: bool) -> None:
        reply = load(self.subject, name, self.folder(content), pinned)
        self.note(reply, "failed_loads", f"load {content.label} as {name}")
        self._history.setdefault(name, []).append((self.number, content))

    def folder(self, content: Content) -> Path:
        """Where the files of these weights lie."""
        return self._contents.folder(content)

    def loaded(self, number: int, name: str, content: Content, reply: Reply) -> None:
        """Take note of a load that was asked for elsewhere."""
        self.number = number
        self.note(reply, "failed_loads", f"load {content.label} as {name}")
        self._history.setdefault(name, []).append((number, content))
        self._standing.take(Load(name, content))

    def _refuse(self, kind: Refusal, name: str) -> None:
        reply = self._contents.refused(kind, name)
        if reply.refusal is None:
            self.count("wrongly_accepted", f"{kind} was accepted for {name}")
        elif not any(cause in reply.refusal.lower() for cause in CAUSES[kind]):
            self.count("unclear_refusals", f"{kind} was refused without its cause: {reply.refusal!r}")
        if reply.refusal is not None and kind not in (Refusal.LOADED_NAME, Refusal.NEVER_LOADED):
            later = self._contents.serve_unknown(name)
            if later.accepted:
                self.count("served_refused", f"{name} is served after it was refused ({kind})")

    def _serve(self, batch: Batch) -> None:
        questions = [Question(self.prompts[row.prompt], row.identity, row.start, NEW_TOKENS) for row in batch]
        try:
            answers = ask(self.subject, questions)
        except Exception as error:  # whatever SGLang says no with
            self.count("failed_requests", f"a batch of {[q.identity or 'base' for q in questions]} failed: {error}")
            return
        for place, (question, answer) in enumerate(zip(questions, answers, strict=True)):
            self.judge(question, answer, f"row {place} of {len(batch)}, " if len(batch) > 1 else "")

    def judge(self, question: Question, answer: Text, row: str = "") -> Compared:
        """Hold an answer against the oracle of what stands under its name; `row` begins what is told of it."""
        label = self._contents.known(self._standing.content(question.identity))
        compared = beside_oracle(self.subject, self.prompts, label, question, answer)
        who = f"{row}{question.identity or 'the base model'} ({label or 'no adapter'})"
        self.answers.append((self._when + who, compared))
        if answer.missing:
            self.count("missing_tokens", f"{who} gave {answer.missing} tokens too few", answer.missing)
        if compared.wrong_tokens:
            self.count("wrong_tokens", f"{who} answered for other tokens", compared.wrong_tokens)
        if broken := metrics.non_finite(compared.served):
            self.count("non_finite", f"{who} has NaN or infinite logprobs", broken)
        if not compared.largest_error.within:
            permitted = compared.largest_error.limit or 0.0
            self.count("wrong_answers", f"{who}, {_farthest(compared)}; permitted {permitted:.2g} nat")
            past = self._history.get(question.identity or "", [])
            under = {other: content.label for other, content in self._standing.loaded.items()}
            self.wrong = self.wrong or Wrong(self.number, question, compared, label, tuple(past), under)
        return compared

    def note(self, reply: Reply, name: str, what: str) -> None:
        """Count a refusal of what must be done."""
        if reply.refusal is not None:
            self.count(name, f"could not {what}: {reply.refusal}")

    def count(self, name: str, sentence: str, more: int = 1) -> None:
        """Count what must not be, and tell it."""
        self.counts[name] = self.counts.get(name, 0) + more
        self.red.append(self._when + sentence)
        self.told.setdefault(name, []).append(self.red[-1])

    @property
    def _when(self) -> str:
        return f"operation {self.number}: " if self.number else ""

    def measurements(self, subject: SGLangSubject) -> list[Measurement]:
        """Counts that must be 0, and the distance of all answers to the oracle."""
        counted = [self._counted(name, note) for name, note in _COUNTS.items()]
        return [*counted, *(_distances(self.answers, subject) if self.answers else [])]

    def _counted(self, name: str, note: str) -> Measurement:
        judged = limits.exactly_none(name, self.counts.get(name, 0), note)
        return judged.model_copy(update={"where": "; ".join(self.told.get(name, [])[:_NAMED])})

    def evidence(self, steps: Sequence[Step], died: bool) -> dict[str, JsonValue]:
        """Where it went wrong, since when, and whose values came back."""
        number = self.wrong.number if self.wrong else max(self.number, 1)
        step = steps[number - 1]
        red: list[JsonValue] = [*self.red[:_SENTENCES], *(["the engine died"] if died else [])]
        told: dict[str, JsonValue] = {
            "operation": number,
            "kind": step.kind,
            "asked": in_words(step.act) if step.act else _served(step),
            "red": red,
        }
        if self.wrong is None:
            return told
        since = self.wrong.past[-1][0] if self.wrong.past else 1
        lines: list[JsonValue] = [
            f"{place}: {in_words(s.act) if s.act else _served(s)}"
            for place, s in enumerate(steps[since - 1 : number], start=since)
        ]
        told["since_load"] = lines[-_TOLD:]
        return told | self.explanation()

    def explanation(self) -> dict[str, JsonValue]:
        """Whose values the first wrong answer has; empty where none is wrong."""
        if self.wrong is None or not self.subject.explains:
            return {}
        name = self.wrong.question.identity
        held = Held(
            label=self.wrong.label,
            before={content.label: number for number, content in self.wrong.past[:-1]},
            under={label: other for other, label in self.wrong.under.items() if other != name},
        )
        return told_of(self.subject.oracle, self.wrong.compared, held)


@dataclass(frozen=True)
class Wrong:
    """The first answer that is not what the oracle says.

    Attributes:
        number: of the operation. label: what the oracle knows the right weights as.
        past: what was loaded under this name, and by which operations. under: what stood under every name then.
    """

    number: int
    question: Question
    compared: Compared
    label: str | None
    past: tuple[tuple[int, Content], ...]
    under: Mapping[str, str]


_COUNTS: Mapping[str, str] = {
    "failed_loads": "refused to load sound files",
    "failed_unloads": "refused to unload what is loaded",
    "failed_requests": "refused to serve what is loaded",
    "wrongly_accepted": "accepted, where only a refusal is right",
    "unclear_refusals": "refused without naming the cause",
    "served_refused": "served what it had refused to load",
    "missing_tokens": "tokens to generate",
    "other_tokens": "the same request went on with other tokens",
    "wrong_tokens": "token ids that are not the text's",
    "non_finite": "NaN or infinite logprobs",
    "wrong_answers": "answers that are farther from the oracle than the peer rule permits",
}


_BREAKING = {"failed_loads", "failed_unloads", "failed_requests", "wrongly_accepted", "served_refused"}


def beside_oracle(
    subject: SGLangSubject, prompts: Sequence[Sequence[int]], label: str | None, question: Question, answer: Text
) -> Compared:
    """An answer beside oracle and peer; the peer's errors on all `prompts` calibrate, since few places would do it badly."""
    compared = compare(subject, [answer.text], label, [answer], [question.first])
    oracle = [subject.oracle.logprobs(prompt, label) for prompt in prompts]
    errors = [subject.peer.logprobs(p, label) - o for p, o in zip(prompts, oracle, strict=True)]
    magnitude = max(compared.magnitude, *(metrics.largest(values) for values in oracle))
    return replace(compared, calibration=np.concatenate([compared.calibration, *errors]), magnitude=magnitude)


def _distances(told: Sequence[tuple[str, Compared]], subject: SGLangSubject) -> list[Measurement]:
    """The answer that uses most of its limit, and the mean over all."""

    def use(answer: tuple[str, Compared]) -> float:
        error = answer[1].largest_error
        return error.value / error.limit if error.limit and np.isfinite(error.value) else float("inf")

    def joined(values: Sequence[Values]) -> Values:
        return np.concatenate(list(values))

    answers = [compared for _, compared in told]
    where, worst = max(told, key=use)
    served, oracle = joined([a.served for a in answers]), joined([a.oracle for a in answers])
    calibration, magnitude = joined([a.calibration for a in answers]), max(a.magnitude for a in answers)
    dtype = subject.session.dtype
    mean = metrics.mean_half_square(served, oracle)
    return [
        worst.largest_error.model_copy(update={"where": f"{where}, {_farthest(worst)}"}),
        limits.peer_mean_half_square("mean_half_square", mean, metrics.mean_half_square(calibration), dtype, magnitude),
        limits.upstream_at_most("upstream_kl", mean, limits.UPSTREAM_KL, "nat²", _UPSTREAM),
        limits.sane_peer(metrics.rms(calibration), dtype, magnitude, "nat"),
        limits.context("answers", float(len(answers)), "count"),
    ]


def _farthest(compared: Compared) -> str:
    return told_at(compared.served, compared.oracle, first=compared.starts[0])


def in_words(act: Act) -> str:
    """An act, for a person."""
    match act:
        case Load(name, content, pinned):
            return f"load {content.label} as {name}{', pinned' if pinned else ''}"
        case Unload(name):
            return f"unload {name}"
        case Reload(name, content):
            return f"unload {name} and load {content.label} under it"
        case Refuse(kind, name):
            return f"refuse {kind} ({name})"


def _served(step: Step) -> str:
    return "serve " + ", then ".join("+".join(row.identity or "base" for row in batch) for batch in step.batches)
