"""Two calls that differ: because of what they were poisoned with, or because the kernel never gives the same answer twice."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from kit.measurement import Measurement
from kit.oracles import limits, metrics
from kit.oracles.metrics import Values
from kit.subjects.kernels.library import POISONS, Answer, Poison
from kit.synthetic.attention import Mask

AGAIN = 15
"""Further pairs of calls, where the first two differ and the kernel does not promise to repeat itself.

A value that takes one of two roundings by chance looks like one that follows the poison in 16 pairs once in 2³¹.
"""


@dataclass(frozen=True)
class Repeated:
    """Answers to one question, with NaN and with huge values in turn in everything that must not matter.

    Attributes:
        poison_changes: values that follow the poison. unrepeatable: values that differ between calls with the same poison.
    """

    answers: tuple[Answer, ...]
    poison_changes: int
    unrepeatable: int

    def worst(self, use: Callable[[Values], float]) -> Values:
        """The answer that is judged: the first, or of many the one that uses most of its limits, since all must keep them."""
        if len(self.answers) == len(POISONS):
            return self.answers[0].out
        return max((answer.out for answer in self.answers), key=lambda out: np.nan_to_num(use(out), nan=np.inf))

    def overwritten(self) -> int:
        """Values behind the rows asked for, in the calls that were made in any case."""
        return sum(answer.overwritten for answer in self.answers[:2])

    def foreign(self) -> list[str]:
        """Kernels that are not the library's."""
        return sorted(set(chain.from_iterable(answer.foreign for answer in self.answers)))

    def measurements(self) -> list[Measurement]:
        """What follows the poison, and, where the kernel was asked again, what does not repeat itself."""
        note = "outputs that depend on what must not matter"
        found = [limits.exactly_none("poison_changes", self.poison_changes, note)]
        if len(self.answers) > len(POISONS):
            note = f"outputs that differ among {len(self.answers)} calls with the same inputs; each call is judged"
            found.append(limits.context("unrepeatable", float(self.unrepeatable), "count", note))
        return found


def ask(call: Callable[[Poison], Answer]) -> Repeated:
    """Two calls. Where the kernel promises the same bits for the same inputs, every difference is the poison's."""
    answers = [call(poison) for poison in POISONS]
    changes = metrics.differing(answers[0].out, answers[1].out)
    if changes == 0 or all(answer.repeatable for answer in answers):
        return Repeated(tuple(answers), changes, 0)
    answers += [call(poison) for _ in range(AGAIN) for poison in POISONS]
    moving = np.any([_differ(answer.out, answers[i % 2].out) for i, answer in enumerate(answers)], axis=0)
    following = _differ(answers[0].out, answers[1].out) & ~moving
    return Repeated(tuple(answers), int(np.count_nonzero(following)), int(np.count_nonzero(moving)))


def _differ(left: Values, right: Values) -> Mask:
    return np.asarray(~((left == right) | (np.isnan(left) & np.isnan(right))))
