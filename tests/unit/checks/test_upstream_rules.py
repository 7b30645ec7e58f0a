"""What upstream's rules are about, measured on an engine whose logits are the peer's, told as SGLang tells them."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from kit.check_spec import AdapterLife, PromptLogprobs
from kit.checks.upstream_rules import UpstreamMeasures
from kit.faults.catalogue import parse_fault
from kit.oracles.metrics import Values
from kit.oracles.reference import LogprobOracle
from kit.plan import InjectedFault
from kit.selftest.upstream import RULES
from kit.subjects.overheard import Heard, Overheard
from kit.subjects.transformers_peer import TransformersPeer

NAMES = ("adapter-0", "adapter-1")
SPEC = PromptLogprobs(adapter="adapter-0", prompt_lengths=(9,), seed=1)
SHORT, LONG = list(range(5, 14)), list(range(20, 130))
ALL = {"½Δ²", "top-5 prefill 0.1", "top-5 prefill 0.3", "top-5 decode 0.1", "ROUGE-L 1", "ROUGE-L 0.9"}


@pytest.fixture(scope="module")
def peer(assets: Path) -> TransformersPeer:
    model = assets / "tiny-qwen3"
    return TransformersPeer(model, {name: model / "adapters" / name for name in NAMES}, "float32", "cpu")


@pytest.fixture(scope="module")
def oracle(assets: Path) -> LogprobOracle:
    model = assets / "tiny-qwen3"
    return LogprobOracle(model, {name: model / "adapters" / name for name in NAMES})


class Engine:
    """Answers as `sglang.Engine` does; `mistaken` says as whom it answers."""

    def __init__(self, peer: TransformersPeer, mistaken: dict[str | None, str | None] | None = None) -> None:
        self._peer, self._mistaken = peer, mistaken or {}

    def generate(self, **asked: Any) -> list[dict[str, Any]]:
        assert asked["top_logprobs_num"] == 5
        rows = zip(asked["input_ids"], asked["lora_path"], strict=True)
        new, start = asked["sampling_params"]["max_new_tokens"], asked.get("logprob_start_len", -1)
        return [self._answer(prompt, identity, new, start == 0) for prompt, identity in rows]

    def _answer(self, prompt: list[int], identity: str | None, new: int, with_prompt: bool) -> dict[str, Any]:
        identity = self._mistaken.get(identity, identity)
        text = [*prompt, *(self._peer.greedy(prompt, identity, new) if new else ())]
        logits = self._peer.last_logits(text, identity, len(text))
        logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        own = [(float(logprobs[place - 1, text[place]]), text[place], None) for place in range(1, len(text))]
        top = [[(float(row[t]), int(t), None) for t in np.argsort(-row)[:5]] for row in logprobs]
        asked = len(prompt) - 1
        return {
            "meta_info": {
                "input_token_logprobs": [(None, prompt[0], None), *own[:asked]] if with_prompt else [],
                "input_top_logprobs": [None, *top[:asked]] if with_prompt else [],
                "output_token_logprobs": own[asked:],
                "output_top_logprobs": top[asked : asked + new],
            }
        }


def said(
    peer: TransformersPeer,
    oracle: LogprobOracle,
    engine: Engine,
    prompts: Sequence[list[int]],
    identities: Sequence[str | None],
    new: int,
    faults: tuple[InjectedFault, ...] = (),
    start: int = 0,
) -> dict[str, bool]:
    """By the rules that can judge, whether the answers to one request pass."""
    heard: list[Heard] = []
    Overheard(engine, heard).generate(
        input_ids=list(prompts),
        lora_path=list(identities),
        sampling_params={"max_new_tokens": new},
        return_logprob=True,
        logprob_start_len=start,
    )
    subject: Any = SimpleNamespace(
        peer=peer,
        oracle=oracle,
        session=SimpleNamespace(adapters=NAMES),
        workspace=SimpleNamespace(faults=faults),
        text=lambda tokens: " ".join(map(str, tokens)),
    )
    measured = UpstreamMeasures().of(SPEC, subject, heard)
    assert not any(m.judged for m in measured)
    verdicts = {rule.name: rule.of(measured) for rule in RULES}
    return {name: verdict for name, verdict in verdicts.items() if verdict is not None}


def test_a_right_engine_passes_all_rules_on_answers(peer: TransformersPeer, oracle: LogprobOracle) -> None:
    found = said(peer, oracle, Engine(peer), [SHORT, SHORT], [None, "adapter-0"], 8)
    assert found == dict.fromkeys(ALL, True)


def test_another_adapters_answers_pass_none(peer: TransformersPeer, oracle: LogprobOracle) -> None:
    engine = Engine(peer, {"adapter-0": "adapter-1"})
    assert said(peer, oracle, engine, [SHORT, SHORT], [None, "adapter-0"], 8) == dict.fromkeys(ALL, False)


def test_the_one_prompt_of_the_mean_is_an_adapters(peer: TransformersPeer, oracle: LogprobOracle) -> None:
    base_is_wrong = Engine(peer, {None: "adapter-1"})
    assert said(peer, oracle, base_is_wrong, [LONG, SHORT], [None, "adapter-0"], 0)["½Δ²"]
    assert not said(peer, oracle, base_is_wrong, [SHORT], [None], 0)["½Δ²"]


def test_long_prompts_and_texts_that_are_none_are_not_judged(peer: TransformersPeer, oracle: LogprobOracle) -> None:
    wrong = Engine(peer, {"adapter-0": None})
    assert said(peer, oracle, wrong, [LONG], ["adapter-0"], 0).keys() == {"½Δ²"}
    assert said(peer, oracle, wrong, [LONG], ["adapter-0"], 2, start=-1).keys() == {"top-5 decode 0.1"}


def test_a_fault_of_answers_is_in_what_is_judged(peer: TransformersPeer, oracle: LogprobOracle) -> None:
    faults = (parse_fault("answers-in-bits"),)
    found = said(peer, oracle, Engine(peer), [SHORT], ["adapter-0"], 8, faults)
    assert found == {name: "ROUGE" in name for name in ALL}


def test_values_without_ids_hide_a_swap_of_tokens(peer: TransformersPeer, oracle: LogprobOracle) -> None:
    """Upstream compares the largest with the largest, whichever tokens they are: ids alone may be wrong."""

    class Renamed(Engine):
        def _answer(self, *asked: Any) -> dict[str, Any]:
            answer = super()._answer(*asked)
            for key in ("input_top_logprobs", "output_top_logprobs"):
                places: list[Any] = answer["meta_info"][key]
                answer["meta_info"][key] = [place and [(e[0], e[1] + 1, None) for e in place] for place in places]
            return answer

    assert said(peer, oracle, Renamed(peer), [SHORT], ["adapter-0"], 8) == dict.fromkeys(ALL, True)


def test_nothing_is_said_of_a_case_that_serves_other_weights_under_a_name() -> None:
    spec = AdapterLife(program="walk", adapters=NAMES, slots=3, seed=0, operations=3)
    nobody: Any = None
    values: Values = np.zeros(1)
    heard = Heard("adapter-0", (1, 2), (), 0, values, values.reshape(-1, 1), True)
    assert UpstreamMeasures().of(spec, nobody, [heard]) == []
