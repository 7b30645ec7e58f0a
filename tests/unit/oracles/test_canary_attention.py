from collections.abc import Callable

import numpy as np
import pytest

from kit.oracles import attention, canary_attention
from kit.oracles.twice import OracleDisagreement, Summation


def test_the_oracle_gives_the_known_answers() -> None:
    canary_attention.check.__wrapped__()


@pytest.mark.parametrize("part", ["total", "contract"])
def test_a_machine_that_computes_wrongly_is_caught(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest: Callable = getattr(Summation, part)
    monkeypatch.setattr(Summation, part, lambda *arguments: honest(*arguments) * (1 + 1e-9))
    with pytest.raises(OracleDisagreement, match="known answer"):
        canary_attention.check.__wrapped__()


@pytest.mark.parametrize("part", ["logit_cap", "sinks", "temperature_length"])
def test_an_oracle_that_forgets_a_feature_is_caught(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = attention.attend

    def forgetful(requests, scoring):
        return honest(requests, attention.Scoring(**{**vars(scoring), part: 0.0 if part == "logit_cap" else None}))

    monkeypatch.setattr(attention, "attend", forgetful)
    with pytest.raises(OracleDisagreement, match="known answer"):
        canary_attention.check.__wrapped__()


def test_an_oracle_that_ignores_masks_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = attention.attend

    def blind(requests, scoring):
        return honest([r._replace(visible=np.ones_like(r.visible)) for r in requests], scoring)

    monkeypatch.setattr(attention, "attend", blind)
    with pytest.raises(OracleDisagreement, match="known answer"):
        canary_attention.check.__wrapped__()
