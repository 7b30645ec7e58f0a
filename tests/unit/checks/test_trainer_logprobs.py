"""Upstream's test as kit's check: the same numbers, red where upstream's would be, and where an answer is no answer."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from kit.check_spec import Published, TrainerLogprobs
from kit.checks import trainer_logprobs
from kit.checks.outcome import CheckResult
from kit.checks.recorded_sample import RecordedSample
from kit.measurement import LimitSource, Measurement
from kit.subjects.pinned_model import ADAPTER, PinnedModelSubject

LIMIT = 5e-3
SPEC = TrainerLogprobs(
    limit=LIMIT,
    test="test_lora_tiny_logprob_diff.py",
    differing=("tp_size 1 instead of 4",),
    published=(Published(value=1e-4, on="some GPU", link="https://example.org/1"),),
)
TOKENS = [5, 6, 7, 8, 9]
BASE = np.array([-1.0, -2.0, -3.0, -4.0])
ADAPTED = np.array([-1.5, -2.0, -3.25, -4.0])
TRAINER = ADAPTED + np.array([0.01, -0.02, 0.03, 0.0])
SAMPLER = TRAINER + np.array([0.1, 0.0, 0.0, -0.1])


class Engine:
    """Answers as SGLang does: (logprob, token id, text) per token, the first without logprob."""

    def __init__(self, base: np.ndarray, adapted: np.ndarray, tokens: list[int] | None = None) -> None:
        self._answers = {None: base, ADAPTER: adapted}
        self._tokens = tokens or TOKENS
        self.asked: list[dict] = []

    def generate(self, **asked: object) -> list[dict]:
        self.asked.append(asked)
        logprobs = [None, *self._answers[asked["lora_path"][0]].tolist()]
        entries = [(value, token, None) for value, token in zip(logprobs, self._tokens, strict=True)]
        return [{"meta_info": {"input_token_logprobs": entries}}]


def checked(engine: Engine) -> tuple[CheckResult, dict[str, Measurement]]:
    sample = RecordedSample(np.array(TOKENS), TRAINER, SAMPLER)
    result = trainer_logprobs.check(SPEC, PinnedModelSubject(engine, sample, {}))
    return result, {m.name: m for m in result.measurements}


def red(told: dict[str, Measurement]) -> set[str]:
    return {name for name, m in told.items() if not m.within}


def upstreams_mean(a: np.ndarray, b: np.ndarray) -> float:
    """As upstream has it: in torch, in float32."""
    return float(((torch.tensor(a.tolist()) - torch.tensor(b.tolist())) ** 2 * 0.5).mean())


def test_every_number_is_upstreams() -> None:
    _, told = checked(Engine(BASE, ADAPTED))
    assert told["trainer_kl"].value == pytest.approx(upstreams_mean(TRAINER, ADAPTED), rel=1e-4)
    assert told["sampler_trainer_kl"].value == pytest.approx(upstreams_mean(TRAINER, SAMPLER), rel=1e-4)
    assert told["sampler_kl"].value == pytest.approx(upstreams_mean(ADAPTED, SAMPLER), rel=1e-4)
    assert told["adapter_effect"].value == pytest.approx((0.125 + 0.03125) / 4)
    assert told["adapter_max_effect"].value == 0.5
    assert told["max_abs_difference"].value == pytest.approx(0.03)
    assert "at token 3" in told["max_abs_difference"].note
    assert told["differing_positions"].value == 2
    assert told["published_trainer_kl"].note == "some GPU; https://example.org/1"
    assert red(told) == set()


def test_only_what_upstream_asserts_is_judged_and_whether_there_is_an_answer() -> None:
    _, told = checked(Engine(BASE, ADAPTED))
    judged = {name: m.source for name, m in told.items() if m.judged}
    exact, upstream = LimitSource.EXACT, LimitSource.UPSTREAM
    assert judged == {
        "non_finite": exact, "wrong_tokens": exact, "trainer_kl": upstream, "differing_positions": upstream,
    }  # fmt: skip
    assert told["trainer_kl"].limit == LIMIT


def test_the_request_is_upstreams_base_first() -> None:
    engine = Engine(BASE, ADAPTED)
    checked(engine)
    assert [asked["lora_path"] for asked in engine.asked] == [[None], [ADAPTER]]
    for asked in engine.asked:
        assert asked["input_ids"] == [TOKENS]
        assert asked["sampling_params"].items() >= {"max_new_tokens": 0, "temperature": 0.0}.items()
        assert (asked["return_logprob"], asked["logprob_start_len"]) == (True, 0)


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        pytest.param(Engine(BASE, ADAPTED + 0.2), {"trainer_kl"}, id="off by more than upstream permits"),
        pytest.param(Engine(ADAPTED, ADAPTED), {"differing_positions"}, id="the adapter does nothing"),
        pytest.param(Engine(BASE, BASE), {"trainer_kl", "differing_positions"}, id="the adapter is not served"),
        pytest.param(
            Engine(BASE, np.array([np.nan, *ADAPTED[1:]])), {"non_finite", "trainer_kl"}, id="a logprob is NaN"
        ),
        pytest.param(Engine(BASE, ADAPTED, [5, 6, 7, 0, 9]), {"wrong_tokens"}, id="another text is answered"),
    ],
)
def test_what_is_wrong_is_red(engine: Engine, expected: set[str]) -> None:
    assert red(checked(engine)[1]) == expected


def test_evidence_names_the_farthest_positions_and_what_differs_from_upstream() -> None:
    result, _ = checked(Engine(BASE, ADAPTED))
    assert result.evidence["tokens"] == 5
    assert result.evidence["other_settings_than_upstream"] == ["tp_size 1 instead of 4"]
    worst = result.evidence["worst"]
    assert [entry["position"] for entry in worst] == [3, 2, 1, 4]
    assert worst[0] == {
        "position": 3, "token": 8, "served": -3.25, "trainer": pytest.approx(-3.22), "sampler": pytest.approx(-3.22),
    }  # fmt: skip
