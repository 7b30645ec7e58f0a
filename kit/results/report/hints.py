"""What to try next, by status, by the measurement that decided, and by what became of the cases beside it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from shlex import quote

from kit.faults.catalogue import MARK, SWEEP, fault_text
from kit.measurement import Measurement
from kit.results.model import CaseResult, RunResult, Status
from kit.results.text import number, printable

_OF_MEASUREMENT = {
    "non_finite": (
        "NaN or infinity: suspect memory that is read before it is written (workspace, unused pages, padded "
        "rows), then overflow."
    ),
    "wrong_tokens": (
        "The answer is about other token ids: look at batching, caching and request order before any numerics."
    ),
    "peer_rms_error": (
        "The peer itself is far from the oracle, so every peer limit here is in doubt: check the reference "
        "stack (torch, transformers, reduced-precision matmul settings) before the subject."
    ),
    "effect": "The adapter has too little effect: is it loaded, under the right name, and on all its target modules?",
    "effect_slope_off_one": (
        "The adapter acts, but with another strength than the oracle says: check scaling (lora_alpha / rank) "
        "and whether every target module and shard gets its part."
    ),
    "max_abs_to_solo": (
        "The row differs from the same prompt served alone: look at how rows find their adapter (segments, "
        "indices, padding), and compare with the other rows of this batch."
    ),
    "head_max_abs_error": (
        "See the map of heads: single heads or one KV group point at indexing, the same entry in all heads at "
        "layout, all heads at scale, dtype or the reduction over splits."
    ),
    "rms_error": (
        "The error is spread, not a single outlier: look at accumulation dtype, scale and the reduction over splits."
    ),
    "cosine_distance": "The direction is wrong, not just the rounding: look at layout, indexing and masks.",
    "max_abs_error": "Look where the plot leaves its limit: from one position on points at cache or block borders, "
    "everywhere at weights, dtype or scaling, single spikes at rounding of near ties.",
    "trainer_kl": (
        "The engine is far from what the trainer recorded. Compare with `sampler_trainer_kl`, the recording's own noise, and with "
        "`adapter_effect`: a distance of that size is another adapter or none. The synthetic models of this run have an oracle: "
        "where they are green, suspect what only this model has (kernels at its sizes, tensor parallelism, experts)."
    ),
    "differing_positions": "Base and adapter give the same logprobs: the adapter is not served. Look at how it was loaded, in the log.",
    "modules_not_found": "SGLang renamed a module or class, and leaves that part of an adapter on all linear modules out.",
    "modules_too_many": "SGLang finds modules that upstream's test does not expect: read what changed before adapters are trusted.",
    "mean_half_square": "The mean is off, not just one position: look at weights, scaling and accumulation dtype.",
}
_ON_SIGNALS = {
    "SIGKILL": "SIGKILL is mostly the memory limit: look at the kernel's log (dmesg) and at `memory` in the profile.",
    "SIGSEGV": "SIGSEGV is native code: run the case alone, with core dumps or the vendor's memory checker on.",
    "SIGABRT": "SIGABRT is an assertion or heap corruption in native code; the message is at the end of the log.",
    "SIGBUS": "SIGBUS is often a full /dev/shm: look at `shm` in the profile.",
    "out of memory": "Memory ran out: free the machine, or raise `memory` in the profile with a reason.",
}


def _asked(mark: str) -> str:
    """The options of ``kit selftest`` by the mark of a case: of a fault-free round, of a sweep, or of a fault."""
    if mark.isdecimal():
        return f"--fault none --rounds {int(mark) + 1}"
    if mark.startswith(SWEEP):
        return f"--sweep {quote(mark.removeprefix(SWEEP).partition(':')[0])} --rounds 0"
    return f"--fault {quote(mark)} --rounds 0"


_EXCEPTION = re.compile(r"\b(?:Type|Attribute|Import|ModuleNotFound|Key|Value|Name|NotImplemented)Error\b")


@dataclass(frozen=True)
class Hints:
    """Hints for the cases of one result."""

    result: RunResult

    @cached_property
    def _by_id(self) -> dict[str, CaseResult]:
        return {case.id: case for case in self.result.cases}

    @cached_property
    def _enders(self) -> dict[str, CaseResult]:
        """Per session the first case that tells how it ended."""
        ends = (Status.CRASHED, Status.TIMEOUT, Status.ENVIRONMENT)
        return {case.session: case for case in reversed(self.result.cases) if case.status in ends}

    def of(self, case: CaseResult) -> tuple[str, ...]:
        """What to try, in order; empty for a pass."""
        if case.status is Status.PASSED:
            return ()
        hints = list(self._own(case))
        if case.status not in (Status.SKIPPED, Status.MISSING):
            hints.append(f"Run it alone: {self.command(case)}")
        return tuple(hints)

    def command(self, case: CaseResult) -> str:
        """The command that runs this case alone."""
        runtime = f" --runtime {self.result.runtime}" if self.result.runtime else ""
        plain, selftest, under = case.id.partition(MARK)
        if selftest:
            command = f"kit selftest --profile {self.result.profile.name}{runtime} --case {quote(plain)}"
            return printable(f"{command} {_asked(under)}")
        injected = "".join(f" --inject {fault_text(fault)}" for fault in self.result.faults)
        return printable(f"kit run --profile {self.result.profile.name}{runtime} --case {quote(case.id)}{injected}")

    def _own(self, case: CaseResult) -> Iterator[str]:
        match case.status:
            case Status.FAILED | Status.WAIVED:
                yield from self._failed(case)
            case Status.CRASHED:
                yield from (hint for word, hint in _ON_SIGNALS.items() if word in case.reason)
                if exception := _EXCEPTION.search(case.reason):
                    yield (
                        f"{exception[0]} is a Python exception, not the hardware: compare the versions in this report "
                        "with the image's definition."
                    )
                yield f"Read the end of {self._log(case)}: it holds the last words of the process."
            case Status.TIMEOUT:
                yield (
                    f"See where it stood at the end of {self._log(case)}; is the machine shared, or does a "
                    "first compilation take the time?"
                )
                yield "Raise a limit only in the profile's [time], with a reason; a hang stays a hang."
            case Status.ENVIRONMENT:
                yield (
                    "Mend the machine first (devices, memory, driver, other processes): nothing here is a "
                    "verdict on what is under test."
                )
            case Status.MISSING:
                yield from self._missing(case)
            case Status.SKIPPED:
                yield (
                    "Nothing to do, unless this profile should cover it; mode qualify refuses a skip of a "
                    "mandatory battery."
                )
            case Status.UNEXPECTED_PASS:
                yield (
                    f"If a second run passes too, remove waiver {case.waiver} from profiles/waivers.toml: the "
                    "fault seems to be gone."
                )
            case Status.PASSED:
                return

    def _failed(self, case: CaseResult) -> Iterator[str]:
        under = case.id.partition(MARK)[2]
        if self.result.faults and not under.isdecimal():
            names = under or ", ".join(fault.name for fault in self.result.faults)
            yield (
                f"{names} was injected on purpose; if it acts on this case, red is what must be seen. Run "
                "again without --inject."
            )
        if says := _explanation(case):
            yield says
        yield from self._beside(case)
        for measurement in sorted((m for m in case.measurements if not m.within), key=_how_far)[:3]:
            if hint := _OF_MEASUREMENT.get(measurement.name):
                yield hint + _by_how_much(measurement)

    def _beside(self, case: CaseResult) -> Iterator[str]:
        """What the base model's case beside an adapter's case tells."""
        subject, _, aspect = case.id.rpartition("/")
        base = self._by_id.get(f"{subject}/base")
        if base is None or base is case or not aspect.startswith("adapter"):
            return
        if base.status is Status.PASSED:
            yield (
                f"{base.id} passes on the same engine, so model and attention are right: look at LoRA "
                "(loading, scaling, kernels)."
            )
        elif base.status is Status.FAILED:
            yield f"{base.id}, without any adapter, fails too: start there, LoRA is probably not at fault."

    def _missing(self, case: CaseResult) -> Iterator[str]:
        ender = self._enders.get(case.session)
        if ender is not None:
            yield f"Nothing to mend here: {ender.id} ({ender.status}) ended session {case.session}; start there."
        else:
            yield f"Read {self._log(case)} and what ended the run above."

    def _log(self, case: CaseResult) -> str:
        return next((s.log for s in self.result.sessions if s.id == case.session), "the session's log")


def _explanation(case: CaseResult) -> str:
    """What the case's own evidence says of its values (`kit.checks.explanation`)."""
    match case.evidence.get("explanation"):
        case {"says": str(says)}:
            return says
    return ""


def _how_far(measurement: Measurement) -> float:
    return measurement.margin if measurement.margin is not None else 0.0


def _by_how_much(measurement: Measurement) -> str:
    if measurement.name == "effect_slope_off_one" and measurement.value < 10:
        return f" It is off by {number(100 * measurement.value)} %."
    return ""
