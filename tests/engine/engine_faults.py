"""Asks one real SGLang a few things, honest and under every fault that acts inside it; prints JSON: what each fault touched.

``engine_faults.py SCRATCH [FAULT …]``. A process of its own, as an engine always is. The same engine is asked small cases of the
multi-lora battery under the faults that its issue names, and what their red measurements say is printed too.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kit.batteries.sessions import sglang
from kit.check_spec import AdapterLife, CachedIdentities, CheckSpec, MixedBatch, MixedBatches
from kit.checks import run_check
from kit.faults.catalogue import FAULTS, parse_fault
from kit.faults.switch import engine_under
from kit.profile import find_profile
from kit.subjects import Workspace, open_subject
from kit.subjects.sglang_engine import SGLangSubject
from kit.synthetic.catalogue import MODELS
from kit.synthetic.files import model_files
from kit.synthetic.program_names import ONE_SLOT, RELOAD
from kit.synthetic.prompts import prompts

MODEL = "tiny-qwen3"
ADAPTERS = ("adapter-0", "adapter-1", "query-value")
SLOTS = 4
DIFFERENT = 1e-3
"""nat; the same request in another batch differs by less than a hundredth of it in float32, every fault here by more."""

Told = dict[str, list[float]]
Places = dict[str, str]


def batches(subject: SGLangSubject) -> Told:
    """Prompts together and alone: short and long batches, and more than eight rows."""
    mixed = ("adapter-0", None, "adapter-1", "query-value")
    told = _rows("short", subject, mixed, [12] * 4) | _rows("long", subject, mixed, [17] * 4)
    told |= _rows("many", subject, ["adapter-0"] * 10, [4] * 10)
    return told | {"alone": _values(subject.alone(prompts([20], 2000, 5), "adapter-1")[0])}


def decoding(subject: SGLangSubject) -> Told:
    """A few tokens for three rows at once; the values of the first token come from prefill."""
    answers = subject.generate(prompts([9, 9, 9], 2000, 6), ["adapter-0", None, "adapter-1"], 8)
    told = {f"row-{place}": _values(answer) for place, answer in enumerate(answers)}
    return {f"{row}-{part}": values[cut] for row, values in told.items() for part, cut in _PARTS.items()}


_PARTS = {"first": slice(0, 1), "further": slice(1, None)}


def positions(subject: SGLangSubject) -> Told:
    """A prompt that passes the position from which one counts too high."""
    values = _values(subject.alone(prompts([140], 2000, 7), None)[0])
    return {"early": values[:127], "late": values[127:]}


def caching(subject: SGLangSubject) -> Told:
    """One prompt under base, two adapters, and again."""
    asked = prompts([40], 2000, 8)
    told = {}
    for place, identity in enumerate((None, "adapter-0", "adapter-1", "adapter-0")):
        answer = subject.generate(asked, [identity], 2)[0]
        told[f"{place}-{identity}"] = [float(answer.cached), *_values(answer)]
    return told


def living(subject: SGLangSubject) -> Told:
    """Adapters that come back after they were evicted, and one that is loaded under another's name."""
    asked, told = prompts([12], 2000, 9), {}
    for place, name in enumerate(("adapter-0", "adapter-1", "query-value")):
        told[f"first-{place}"] = _values(subject.alone(asked, name)[0])
    for name, of in (("lora", "rank-64"), ("second", "attention")):
        _load(subject, name, of)
        told[f"new-{name}"] = _values(subject.alone(asked, name)[0])
    told["new-again"] = _values(subject.alone(asked, "second")[0])
    for place, name in enumerate(("adapter-0", "adapter-1", "query-value")):
        told[f"back-{place}"] = _values(subject.alone(asked, name)[0])
    subject.engine.unload_lora_adapter("lora")
    _load(subject, "lora", "rslora")
    told["reloaded"] = _values(subject.alone(asked, "lora")[0])
    for name in ("lora", "second"):
        subject.engine.unload_lora_adapter(name)
    return told


SCENES: dict[str, Callable[[SGLangSubject], Told]] = {
    scene.__name__: scene for scene in (batches, decoding, positions, caching, living)
}


def mixed_batch(*composition: str | None) -> MixedBatch:
    """More than 64 tokens, and as many identities as the engine has slots."""
    rows = len(composition)
    return MixedBatch(composition=composition, prompt_lengths=(17,) * rows, new_tokens=(1,) * rows)


MIXED = MixedBatches(
    batches=(mixed_batch(*ADAPTERS[:1], None, *ADAPTERS[1:]), mixed_batch(ADAPTERS[2], ADAPTERS[0], None, ADAPTERS[1])),
    slots=SLOTS,
    seed=3,
)
IN_ONE_SLOT = AdapterLife(program=ONE_SLOT, adapters=ADAPTERS, slots=SLOTS)
RELOADED = AdapterLife(program=RELOAD, adapters=ADAPTERS, slots=SLOTS)
ONE_PROMPT = CachedIdentities(adapters=ADAPTERS[:2], carried="nothing", prompt_length=40, seed=3)
CASES: dict[str, CheckSpec] = {
    "batch-slot-zero": MIXED,
    "batch-rows-permuted": MIXED,
    "batch-adapters-of-previous": MIXED,
    "batch-third-adapter-skipped": MIXED,
    "batch-base-adapted": MIXED,
    "load-slot-not-rewritten": RELOADED,
    "load-scaled-again-by-name": RELOADED,
    "load-scaled-twice": IN_ONE_SLOT,
    "load-missing-not-zeroed": IN_ONE_SLOT,
    "cache-key-without-adapter": ONE_PROMPT,
}
"""By fault, a case that must see it."""


def judged(spec: CheckSpec, subject: SGLangSubject) -> Places:
    """By measurement outside its limit, where the case says that it is."""
    return {m.name: m.where for m in run_check(spec, subject).measurements if not m.within}


def scene_of(fault: str) -> str:
    """Where a fault shows; every seventh batch takes a scene of more than seven."""
    if fault == "batch-now-and-then":
        return "living"
    if fault.startswith(("batch-", "logits-of")):
        return "batches"
    if fault.startswith(("cache-", "chunk-")):
        return "caching"
    if fault.startswith(("load-", "evict-")):
        return "living"
    return "decoding" if fault.startswith("decode-") else "positions"


def touched(honest: Told, served: Told) -> list[str]:
    """What differs from the honest answer."""
    return [
        label
        for label, values in honest.items()
        if len(values) != len(served[label]) or not np.allclose(values, served[label], rtol=0, atol=DIFFERENT)
    ]


def main() -> None:
    scratch = Path(sys.argv[1])
    for path, data in model_files(MODELS[MODEL]).items():
        (scratch / path).parent.mkdir(parents=True, exist_ok=True)
        (scratch / path).write_bytes(data)
    further: dict[str, Any] = {"disable_radix_cache": False, "max_loras_per_batch": SLOTS, "max_lora_rank": 64}
    further |= {"lora_target_modules": ["all"]}
    names = sys.argv[2:] or [name for name, kind in FAULTS.items() if kind.acts_on == "engine"]
    session = sglang(find_profile("cpu"), MODELS[MODEL], ADAPTERS, further=further).spec
    with open_subject(session, Workspace(scratch, scratch, switched=True)) as subject:
        assert isinstance(subject, SGLangSubject)
        scenes = sorted({scene_of(name) for name in names})
        honest = {scene: _answers(subject, scene) for scene in scenes}
        found = {f"honest {scene}": touched(honest[scene], _answers(subject, scene)) for scene in scenes}
        for name in names:
            faulty = engine_under(subject, (parse_fault(FAULTS[name].as_reported),))
            found[name] = touched(honest[scene_of(name)], SCENES[scene_of(name)](faulty))
            print(name, found[name], file=sys.stderr, flush=True)
        named = {}
        honest_cases = {spec: judged(spec, engine_under(subject, ())) for spec in dict.fromkeys(CASES.values())}
        for name, spec in CASES.items():
            named[f"honest {name}"] = honest_cases[spec]
            named[name] = judged(spec, engine_under(subject, (parse_fault(name),)))
            print(name, named[name], file=sys.stderr, flush=True)
    print(json.dumps({"touched": found, "named": named}))


def _answers(subject: SGLangSubject, scene: str) -> Told:
    return SCENES[scene](engine_under(subject, ()))


def _rows(label: str, subject: SGLangSubject, identities: Any, lengths: list[int]) -> Told:
    answers = subject.together(prompts(lengths, 2000, 4), identities)
    return {f"{label}-{place}": _values(answer) for place, answer in enumerate(answers)}


def _values(answer: Any) -> list[float]:
    return [float(value) for value in answer.logprobs]


def _load(subject: SGLangSubject, name: str, of: str) -> None:
    folder = subject.adapter_folder("adapter-0").parent / of
    result = subject.engine.load_lora_adapter(name, str(folder))
    assert result.success, result.error_message


if __name__ == "__main__":
    main()
