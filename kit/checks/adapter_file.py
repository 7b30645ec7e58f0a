"""One variant of an adapter's files: honoured or refused with a clear error, and nobody else is hurt.

The engine may die of the file: that is measured, and the next case finds a fresh engine.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from kit.check_spec import AdapterFile
from kit.checks.logprobs import Compared, Prompts, accuracy, compare, effect, same_again
from kit.checks.outcome import CheckResult
from kit.measurement import Measurement
from kit.oracles import limits, metrics
from kit.oracles.peft_meaning import read_meaning
from kit.subjects.adapter_loading import Reply, load, serve, unload
from kit.subjects.engine_life import EngineDied
from kit.subjects.sglang_engine import Served, SGLangSubject
from kit.synthetic.adapter_files import PAYLOAD_RAN, write_variant
from kit.synthetic.adapter_variants import Operation, Right, Variant, find_variant
from kit.synthetic.prompts import prompts as seeded_prompts

_SKIPPED = Reply()


@dataclass
class _Trial:
    """The engine's answers, as far as it lived. `later` is a request under a name whose loading was refused."""

    name: str
    loading: Reply = _SKIPPED
    serving: Reply = _SKIPPED
    unloading: Reply = _SKIPPED
    later: Reply | None = None
    died: bool = False

    @property
    def refusal(self) -> str | None:
        """Why loading or serving was refused; None where neither was."""
        return self.serving.refusal if self.loading.accepted else self.loading.refusal

    @property
    def served(self) -> tuple[Served, ...]:
        """Answers under the variant's name; none where it was refused, or the engine died."""
        return () if self.died else self.serving.served


def check(spec: AdapterFile, subject: SGLangSubject) -> CheckResult:
    """Serve the others, load the variant, serve it, unload it, serve the others again."""
    variant = find_variant(spec.variant)
    if variant.like in subject.life.died_of:
        return _untried(variant)
    prompts = seeded_prompts(spec.prompt_lengths, subject.vocabulary, spec.seed)
    folder = subject.workspace.scratch / "adapter-files" / variant.name
    if variant.operation is not Operation.SERVE:
        shutil.rmtree(folder, ignore_errors=True)
        write_variant(variant.name, subject.adapter_folder(spec.adapter), folder)
    before = _others(spec, subject, prompts)
    after: dict[str | None, Compared] = {}
    trial = _Trial(spec.adapter if variant.operation is Operation.LOAD_AGAIN else f"file-{variant.name}")
    try:
        with subject.life.mortal(variant.name):
            _try(trial, variant, subject, folder, prompts)
            after = _others(spec, subject, prompts)
    except EngineDied:
        trial.died = True
    measurements = [
        limits.exactly_none("engine_deaths", int(trial.died), "the engine died of this file"),
        limits.exactly_none(
            "served_refused", int(bool(trial.later and trial.later.accepted)), "served what it had refused to load"
        ),
        limits.exactly_none("failed_unloads", int(not trial.unloading.accepted), "refused to unload the adapter"),
        *_answer(trial, variant),
    ]
    if variant.name == "pickle":
        ran = int((folder / PAYLOAD_RAN).exists())
        measurements.append(limits.exactly_none("payload_ran", ran, "the code in the pickle was run"))
    evidence: dict[str, JsonValue] = {
        "file": variant.stands_for,
        "right": variant.right.value,
        "engine": _in_words(trial),
    }
    if trial.served:
        if variant.right is not Right.REFUSE:
            meaning = read_meaning(folder, subject.oracle.weights)
            subject.oracle.learn(trial.name, meaning)
            subject.peer.learn(trial.name, meaning)
        measurements += _served(trial, spec, variant, subject, prompts, before)
        evidence["served_as"] = _served_as(trial, spec, variant, subject, prompts)
    for other, again in after.items():
        measurements += same_again(f"{other or 'base'}_before", again, before[other])
    return CheckResult(tuple(measurements), evidence)


def _untried(variant: Variant) -> CheckResult:
    """Red without a trial: the engine has died of a file of the same kind, and a start takes long."""
    note = f"not tried: the engine died of {variant.like}, which is of the same kind"
    evidence: dict[str, JsonValue] = {"file": variant.stands_for, "right": variant.right.value, "engine": note}
    return CheckResult((limits.exactly_none("untried_after_deaths", 1, note),), evidence)


def _others(spec: AdapterFile, subject: SGLangSubject, prompts: Prompts) -> dict[str | None, Compared]:
    """Base, adapter and neighbour, all prompts in one batch."""
    names = (None, spec.adapter, spec.neighbour)
    rows = [(name, prompt) for name in names for prompt in prompts]
    answers = subject.together([prompt for _, prompt in rows], [name for name, _ in rows])
    return {
        name: compare(subject, prompts, name, [a for a, (of, _) in zip(answers, rows, strict=True) if of == name])
        for name in names
    }


def _try(trial: _Trial, variant: Variant, subject: SGLangSubject, folder: Path, prompts: Prompts) -> None:
    if variant.operation is not Operation.SERVE:
        trial.loading = load(subject, trial.name, folder)
    if variant.operation is Operation.LOAD_AGAIN:
        return
    if not trial.loading.accepted:
        trial.later = serve(subject, prompts[:1], trial.name)
        return
    trial.serving = serve(subject, prompts, trial.name)
    if variant.operation is Operation.LOAD:
        trial.unloading = unload(subject, trial.name)


def _in_words(trial: _Trial) -> str:
    if trial.died:
        return "died"
    return "accepted" if trial.refusal is None else f"refused: {trial.refusal or 'without a word'}"


def _answer(trial: _Trial, variant: Variant) -> list[Measurement]:
    """Whether to accept or to refuse was right, and whether a refusal says why."""
    if trial.died:
        return []
    if trial.refusal is None:
        wrong = int(variant.right is Right.REFUSE)
        return [limits.exactly_none("wrongly_accepted", wrong, "accepted, where only a refusal is right")]
    if variant.right is Right.HONOUR:
        return [limits.exactly_none("wrongly_refused", 1, "refused, although every LoRA engine must know this")]
    unclear = not any(cause in trial.refusal.lower() for cause in variant.causes)
    named = ", ".join(variant.causes)
    return [limits.exactly_none("unclear_refusals", int(unclear), f"refused without naming one of: {named}")]


def _served(
    trial: _Trial,
    spec: AdapterFile,
    variant: Variant,
    subject: SGLangSubject,
    prompts: Prompts,
    before: Mapping[str | None, Compared],
) -> list[Measurement]:
    """How near what was served is to what the file means; what should have been refused is only held against NaN."""
    if variant.right is Right.REFUSE:
        values = np.concatenate([answer.logprobs for answer in trial.served])
        return [limits.exactly_none("non_finite", metrics.non_finite(values), "NaN or infinite logprobs")]
    meant, sound = compare(subject, prompts, trial.name, trial.served), before[spec.adapter]
    differs = metrics.max_abs(meant.oracle, sound.oracle) > 0.0
    comparable = differs and not subject.workspace.faults  # a fault alters the sound adapter, not the file
    return [*accuracy(meant), *(effect(meant, sound) if comparable else [])]


def _served_as(
    trial: _Trial, spec: AdapterFile, variant: Variant, subject: SGLangSubject, prompts: Prompts
) -> JsonValue:
    """Whose values came back, within the peer rule."""
    known = {spec.adapter: f"{spec.adapter}, of which the file was made", None: "the base model"}
    if variant.right is not Right.REFUSE:
        known = {trial.name: "what the file means", **known}
    for name, words in known.items():
        if compare(subject, prompts, name, trial.served).largest_error.within:
            return words
    return "neither what the file was made of nor the base model"
