"""What the engine is asked only once."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from kit.subjects.sglang_engine import Served, SGLangSubject


def test_a_question_is_sent_once_and_every_identity_has_its_own_answers() -> None:
    asked: list[tuple[str | None, tuple[int, ...]]] = []

    def alone(prompts: Sequence[Sequence[int]], identity: str | None) -> list[Served]:
        asked.extend((identity, tuple(prompt)) for prompt in prompts)
        return [Served(np.full(1, float(len(asked))), (prompt[1],)) for prompt in prompts]

    subject = SGLangSubject(session=None, workspace=None, life=None, facts={})  # type: ignore[arg-type]
    once = SimpleNamespace(alone=alone, _first_answers=subject._first_answers)
    first = SGLangSubject.at_first(once, [[1, 2], [3, 4]], None)  # type: ignore[arg-type]
    again = SGLangSubject.at_first(once, [[3, 4], [1, 2]], None)  # type: ignore[arg-type]
    assert again == [first[1], first[0]]
    assert asked == [(None, (1, 2)), (None, (3, 4))]
    adapted = SGLangSubject.at_first(once, [[1, 2]], "adapter-0")  # type: ignore[arg-type]
    assert adapted != first[:1] and asked[2:] == [("adapter-0", (1, 2))]
