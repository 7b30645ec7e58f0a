"""Comparison and triage of texts on real transformers models whose head makes two tokens all but equal.

The subject is transformers too, on weights of which one row of the head is moved: by a hair, or by far.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kit.checks.outcome import CheckResult
from kit.checks.texts import Row, compare_texts, ended
from kit.oracles.limits import Dtype
from kit.oracles.reference import LogprobOracle
from kit.oracles.triage import BATCH_SIZES, Choice, TextDifference, judge
from kit.subjects.continued import TOP, Continued
from kit.synthetic.catalogue import TINY_QWEN3
from kit.synthetic.files import model_files
from kit.synthetic.prompts import prompts

pytest.importorskip("torch")
pytest.importorskip("transformers")

from kit.subjects.transformers_peer import TransformersPeer

SHAPE = replace(TINY_QWEN3, name="tie", vocabulary=48, hidden=64, heads=2, kv_heads=1, head_dim=32, intermediate=64,
                adapters=(), further=())  # fmt: skip
NEW_TOKENS = 6
(PROMPT,) = prompts([9], SHAPE.vocabulary, seed=3)
HAIR = 2.0**-22
"""Two float32 units in the last place, relative."""


@dataclass(frozen=True)
class Subject:
    """Transformers on other weights than the peer's."""

    own: TransformersPeer
    peer: TransformersPeer
    oracle: LogprobOracle | None = None
    dtype: Dtype = "float32"
    ends: frozenset[int] = frozenset()

    def text(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))

    def answer(self) -> Continued:
        tokens = self.own.greedy(PROMPT, None, NEW_TOKENS)
        logits = self.own.last_logits([*PROMPT, *tokens], None, NEW_TOKENS + 1)[:-1]
        logprobs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        top = tuple(
            tuple(Choice(token=int(t), logprob=float(row[t])) for t in np.argsort(-row)[:TOP]) for row in logprobs
        )
        return Continued(tokens, logprobs[np.arange(NEW_TOKENS), list(tokens)], top)

    def checked(self) -> CheckResult:
        row = Row("row 0", None, tuple(PROMPT), self.answer())
        return compare_texts(self, [row], NEW_TOKENS, 1.0, "the test's")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A model with its head changed: row `other` becomes (1 + by) times the row of the first new token."""
    made = tmp_path_factory.mktemp("models")
    files = model_files(SHAPE)

    def altered(name: str, by: float | None, first: int = 0, other: int = 0) -> Path:
        folder = made / name
        folder.mkdir()
        for path, data in files.items():
            (folder / Path(path).name).write_bytes(data)
        if by is not None:
            tensors = load_file(folder / "model.safetensors")
            head = tensors["lm_head.weight"].astype(np.float32)
            head[other] = head[first] * np.float32(1 + by)
            tensors["lm_head.weight"] = head
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return altered


@pytest.fixture(scope="module")
def folders(model: Callable[..., Path]) -> dict[str, Path]:
    plain = model("plain", None)
    start = peer(plain).last_logits(PROMPT, None, 1)[0]
    first, other = int(np.argmax(start)), int(np.argmin(start))
    assert start[first] > 0  # so that a larger row is likelier
    far = 1.2 / start[first]  # 1.2 nat
    made = {"below": -HAIR, "above": HAIR, "far": far, "apart": far / 4}
    return {name: model(name, by, first, other) for name, by in made.items()}


def peer(folder: Path) -> TransformersPeer:
    return TransformersPeer(folder, {}, "float32", "cpu")


def values(result: CheckResult) -> dict[str, float]:
    return {m.name: m.value for m in result.measurements}


def green(result: CheckResult) -> bool:
    return all(m.within for m in result.measurements)


def verdicts(result: CheckResult) -> list[str]:
    return [row["verdict"] for row in result.evidence.get("triage", [])]


def test_equal_texts_need_no_triage(folders: dict[str, Path]) -> None:
    result = Subject(peer(folders["below"]), peer(folders["below"])).checked()
    assert green(result) and values(result)["rouge_l"] == 1 and values(result)["differing_texts"] == 0
    assert result.evidence == {"texts_compared": 1}


def test_a_token_that_is_a_hair_behind_is_a_near_tie(folders: dict[str, Path]) -> None:
    oracle = LogprobOracle(folders["below"], {})
    result = Subject(peer(folders["above"]), peer(folders["below"]), oracle).checked()
    assert verdicts(result) == ["near tie"], result.evidence["triage"]
    assert green(result) and values(result)["differing_texts"] == 1
    assert values(result)["rouge_l_to_batch_of_one"] < 1 == values(result)["rouge_l"]
    found = TextDifference.model_validate(result.evidence["text_differences"][0])
    assert found.departures[0].position == 0
    assert 0 < found.departures[0].gap < found.noise.floor < 1e-4
    assert [opinion.who for opinion in found.departures[0].opinions] == ["subject", "peer", "oracle"]


def test_the_same_text_with_a_gap_above_1_is_a_fault(folders: dict[str, Path]) -> None:
    near = Subject(peer(folders["above"]), peer(folders["below"]))
    far = Subject(peer(folders["far"]), peer(folders["below"]))
    assert near.answer().tokens[0] == far.answer().tokens[0]
    result = far.checked()
    assert verdicts(result) == ["subject fault"] and not green(result)
    assert values(result)["subject_faults"] == 1 and values(result)["rouge_l"] < 1


class Drifting(TransformersPeer):
    """A reference that takes the other of two all but equal tokens in a batch of one."""

    alone: TransformersPeer

    def greedy(self, prompt: Sequence[int], identity: str | None, new_tokens: int, rows: int = 1) -> tuple[int, ...]:
        return (self.alone if rows == 1 else super()).greedy(prompt, identity, new_tokens, rows)


@pytest.mark.parametrize(("own", "verdict"), [("above", "reference drift"), ("far", "subject fault")])
def test_the_drift_case_replayed(folders: dict[str, Path], own: str, verdict: str) -> None:
    """In a batch of one the reference writes the one token, in any larger one the other, as the subject does."""
    reference = Drifting(folders["above"], {}, "float32", "cpu")
    reference.alone = peer(folders["below"])
    subject = Subject(peer(folders[own]), reference)
    result = subject.checked()
    assert verdicts(result) == [verdict], result.evidence["triage"]
    assert green(result) == (verdict == "reference drift")
    if green(result):
        assert "batch size 2, 3" in result.evidence["triage"][0]["reason"]


@dataclass(frozen=True)
class Counting:
    """A reference that tells in which batches it was asked to write."""

    peer: TransformersPeer
    sizes: list[int]

    def greedy(self, prompt: Sequence[int], identity: str | None, new_tokens: int, rows: int = 1) -> tuple[int, ...]:
        self.sizes.append(rows)
        return self.peer.greedy(prompt, identity, new_tokens, rows)

    def last_logits(self, text: Sequence[int], identity: str | None, last: int, rows: int = 1) -> np.ndarray:
        return self.peer.last_logits(text, identity, last, rows)


@pytest.mark.parametrize(
    ("own", "other", "sizes", "verdict"),
    [
        ("far", "below", [1], "subject fault"),
        ("below", "apart", [1], "subject fault"),
        ("above", "below", [*BATCH_SIZES], "near tie"),
    ],
)
def test_a_reference_is_swept_only_where_it_could_excuse(
    folders: dict[str, Path], own: str, other: str, sizes: list[int], verdict: str
) -> None:
    """1.2 nat apart nothing excuses; 0.3 nat apart no batch of the reference would write it; a hair apart one might."""
    reference = Counting(peer(folders[other]), [])
    result = Subject(peer(folders[own]), reference, LogprobOracle(folders[other], {})).checked()  # type: ignore[arg-type]
    assert verdicts(result) == [verdict] and reference.sizes == sizes
    found = TextDifference.model_validate(result.evidence["text_differences"][0])
    assert judge(found).verdict == verdict


def test_an_answer_without_tokens_is_missing_tokens_not_a_crash(folders: dict[str, Path]) -> None:
    subject = Subject(peer(folders["below"]), peer(folders["below"]))
    row = Row("row 0", None, tuple(PROMPT), Continued((), np.array([]), ()))
    result = compare_texts(subject, [row], NEW_TOKENS, 1.0, "")
    assert values(result)["missing_tokens"] == NEW_TOKENS and not green(result)


def test_an_answer_that_stops_short_is_a_fault(folders: dict[str, Path]) -> None:
    subject = Subject(peer(folders["below"]), peer(folders["below"]))
    whole = subject.answer()
    short = Continued(whole.tokens[:-2], whole.logprobs[:-2], whole.top[:-2])
    result = compare_texts(subject, [Row("row 0", None, tuple(PROMPT), short)], NEW_TOKENS, 1.0, "")
    assert verdicts(result) == ["subject fault"] and values(result)["missing_tokens"] == 2


def test_a_text_ends_with_the_token_that_ends_it() -> None:
    assert ended((1, 2, 3, 2), frozenset({2})) == (1, 2)
    assert ended((1, 2), frozenset()) == (1, 2)
