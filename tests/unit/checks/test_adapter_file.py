"""The check of adapter files against engines that are right, or wrong in one way each. The reference is the float64 oracle."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from kit.check_spec import AdapterFile
from kit.checks import adapter_file
from kit.checks.outcome import CheckResult
from kit.oracles.peft_meaning import read_meaning
from kit.oracles.reference import LogprobOracle
from kit.subjects.engine_life import EngineDied
from kit.subjects.sglang_engine import Served
from kit.synthetic.adapter_variants import Right, find_variant

NAMES = ("adapter-0", "adapter-1")
NOISE = 5e-7
Values = np.ndarray


def spec(variant: str) -> AdapterFile:
    return AdapterFile(variant=variant, adapter="adapter-0", neighbour="adapter-1", prompt_lengths=(5, 4), seed=1)


class Dying(KeyboardInterrupt):
    """What the handler of a dead engine's signal raises."""


@pytest.fixture(scope="module")
def oracle(assets: Path) -> LogprobOracle:
    return LogprobOracle(assets / "tiny-qwen3", {name: assets / "tiny-qwen3/adapters" / name for name in NAMES})


class Engine:
    """A correct float32 engine of both adapters. What it does with a file is told to it, or it does what is right.

    Args:
        load: gets the variant's folder; returns the error message, None for success. serve: changes what is served under its name.
        disturb: changes what is served to others while the file is loaded.
    """

    vocabulary = 2047
    session = SimpleNamespace(dtype="float32", adapters=NAMES)
    explains = True

    def __init__(
        self,
        oracle: LogprobOracle,
        assets: Path,
        scratch: Path,
        load: Callable[[Path], str | None] = lambda folder: None,
        serve: Callable[[Values], Values] | None = None,
        disturb: Callable[[Values], Values] = lambda values: values,
        serves_as: str | None = None,
    ) -> None:
        self._assets, self._load, self._disturb = assets, load, disturb
        self._serve, self._serves_as = serve or (lambda values: values), serves_as
        self.oracle = oracle
        self.peer = SimpleNamespace(logprobs=lambda p, name: self._rounded(p, name), learn=lambda name, meaning: None)
        self.workspace = SimpleNamespace(scratch=scratch, faults=())
        self.life = SimpleNamespace(mortal=self._mortal, died_of=set())
        self.engine = SimpleNamespace(load_lora_adapter=self._load_lora_adapter, unload_lora_adapter=self._unload)
        self._loaded: str | None = None
        self._met = False

    def adapter_folder(self, name: str) -> Path:
        return self._assets / "tiny-qwen3/adapters" / name

    def together(self, prompts: Sequence[Sequence[int]], names: Sequence[str | None]) -> list[Served]:
        return [
            Served(self._answer(prompt, name), tuple(prompt[1:])) for prompt, name in zip(prompts, names, strict=True)
        ]

    def _answer(self, prompt: Sequence[int], name: str | None) -> Values:
        if name is None or name in NAMES:
            values = self._rounded(prompt, name)
            return self._disturb(values) if self._met else values
        if name != self._loaded:
            raise ValueError(f"adapter {name} is not loaded")
        if self._serves_as is None:
            meaning = read_meaning(self._folder, self.oracle.weights)
            self.oracle.learn(name, meaning)
        return self._serve(self._rounded(prompt, name if self._serves_as is None else self._serves_as))

    def _rounded(self, prompt: Sequence[int], name: str | None) -> Values:
        noise = np.random.default_rng(len(prompt)).normal(size=len(prompt) - 1)
        return self.oracle.logprobs(prompt, name) + NOISE * noise

    def _load_lora_adapter(self, name: str, path: str) -> SimpleNamespace:
        self._folder, self._met = Path(path), True
        message = "already loaded" if name in NAMES else self._load(self._folder)
        if message is None:
            self._loaded = name
        return SimpleNamespace(success=message is None, error_message=message)

    def _unload(self, name: str) -> SimpleNamespace:
        assert name == self._loaded
        self._loaded = None
        return SimpleNamespace(success=True, error_message="")

    @contextmanager
    def _mortal(self, risk: str) -> Iterator[None]:
        try:
            yield
        except Dying:
            self.life.died_of.add(risk)
            raise EngineDied("gone") from None


@pytest.fixture
def engine(oracle: LogprobOracle, assets: Path, tmp_path: Path) -> Callable[..., Engine]:
    return lambda **ways: Engine(oracle, assets, tmp_path / "scratch", **ways)


def red(result: CheckResult) -> set[str]:
    return {m.name for m in result.measurements if not m.within}


def refusing(message: str) -> Callable[[Path], str]:
    return lambda folder: message


def dying(folder: Path) -> str:
    raise Dying


@pytest.mark.parametrize("name", ["rslora", "alpha-0", "rank-1", "file-bfloat16", "alpha-pattern", "lora-bias", "dora"])
def test_an_engine_that_does_what_the_file_means_is_green(engine: Callable[..., Engine], name: str) -> None:
    result = adapter_file.check(spec(name), engine())
    assert red(result) == set()
    assert result.evidence["served_as"] == "what the file means"
    assert {m.name for m in result.measurements if m.judged} >= {
        "engine_deaths", "max_abs_error", "max_abs_to_base_before", "max_abs_to_adapter-0_before", "max_abs_to_adapter-1_before",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["rslora", "alpha-pattern-one-layer", "modules-to-save-norm", "trainable-tokens", "alora"]
)
def test_a_field_that_is_ignored_is_red_and_told(engine: Callable[..., Engine], name: str) -> None:
    result = adapter_file.check(spec(name), engine(serves_as="adapter-0"))
    assert {"max_abs_error", "effect_slope_off_one"} <= red(result)
    assert result.evidence["served_as"] == "adapter-0, of which the file was made"


@pytest.mark.parametrize("name", ["dora", "rank-pattern-lower", "nan-in-a", "pickle"])
def test_a_refusal_that_names_the_cause_is_green_where_it_is_permitted(
    engine: Callable[..., Engine], name: str
) -> None:
    variant = find_variant(name)
    assert variant.right is not Right.HONOUR
    assert (
        red(adapter_file.check(spec(name), engine(load=refusing(f"cannot take {variant.causes[0].upper()}")))) == set()
    )


@pytest.mark.parametrize("message", ["", "division by zero"])
def test_a_refusal_that_says_nothing_is_red(engine: Callable[..., Engine], message: str) -> None:
    assert red(adapter_file.check(spec("rank-0"), engine(load=refusing(message)))) == {"unclear_refusals"}


def test_what_every_engine_must_know_may_not_be_refused(engine: Callable[..., Engine]) -> None:
    result = adapter_file.check(spec("targets-q-v"), engine(load=refusing("target_modules without k_proj")))
    assert red(result) == {"wrongly_refused"}


def test_damage_that_is_accepted_is_red_and_told(engine: Callable[..., Engine]) -> None:
    result = adapter_file.check(spec("stray-safetensors"), engine())
    assert red(result) == set()
    result = adapter_file.check(spec("missing-module"), engine(serves_as="adapter-0"))
    assert red(result) == {"wrongly_accepted"}
    assert result.evidence["engine"] == "accepted"


def test_nan_is_counted(engine: Callable[..., Engine]) -> None:
    result = adapter_file.check(
        spec("nan-in-a"), engine(serves_as="adapter-0", serve=lambda v: np.full_like(v, np.nan))
    )
    assert red(result) == {"wrongly_accepted", "non_finite"}
    assert {m.name: m.value for m in result.measurements}["non_finite"] == 4 + 3


def test_a_death_is_measured_and_its_kind_is_not_tried_again(engine: Callable[..., Engine]) -> None:
    dies = engine(load=dying)
    result = adapter_file.check(spec("other-base"), dies)
    assert red(result) == {"engine_deaths"}
    assert result.evidence["engine"] == "died"
    assert red(adapter_file.check(spec("rank-of-b-wrong"), dies)) == {"untried_after_deaths"}
    assert red(adapter_file.check(spec("extra-module"), dies)) == {"engine_deaths"}


def test_others_that_change_are_red(engine: Callable[..., Engine]) -> None:
    result = adapter_file.check(spec("nan-in-a"), engine(load=refusing("NaN"), disturb=lambda values: values + 1e-4))
    assert red(result) == {"max_abs_to_base_before", "max_abs_to_adapter-0_before", "max_abs_to_adapter-1_before"}


def test_what_was_refused_may_not_be_served(engine: Callable[..., Engine]) -> None:
    careless = engine(load=refusing("NaN"), serves_as="adapter-0")
    careless._loaded = "file-nan-in-a"
    assert red(adapter_file.check(spec("nan-in-a"), careless)) == {"served_refused"}


def test_names(engine: Callable[..., Engine]) -> None:
    assert red(adapter_file.check(spec("loaded-name"), engine())) == set()
    assert red(adapter_file.check(spec("name-never-loaded"), engine())) == set()
    careless = engine(serves_as="adapter-0")
    careless._loaded = "file-name-never-loaded"
    assert red(adapter_file.check(spec("name-never-loaded"), careless)) == {"wrongly_accepted"}


def test_a_pickle_that_runs_is_red(engine: Callable[..., Engine]) -> None:
    def unpickle(folder: Path) -> str:
        import pickle

        pickle.loads((folder / "adapter_model.bin").read_bytes())
        return "pickle: no tensors"

    assert red(adapter_file.check(spec("pickle"), engine(load=unpickle))) == {"payload_ran"}
