"""Checks of an adapter's life and of caches, against engines with slots that are right, or wrong in one way; the oracle is real."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from kit.check_spec import AdapterLife, CachedIdentities, FirstRequests
from kit.checks import adapter_life, cached_identities, first_requests
from kit.checks.outcome import CheckResult
from kit.oracles.layers import Adapter
from kit.oracles.reference import LogprobOracle, read_adapter
from kit.subjects.engine_life import EngineDied
from kit.synthetic.adapter_contents import CAUSES
from kit.synthetic.adapter_walk import Refusal
from kit.synthetic.catalogue import TINY_QWEN3

NAMES = ("query-value", "mlp", "adapter-0", "everything")
SLOTS = 3
NOISE = 3e-7
GENERATED = (7, 8, 9, 10)


class Dying(KeyboardInterrupt):
    """What the handler of a dead engine's signal raises."""


class Engine:
    """Slots, names and a prefix cache, as an engine for LoRA has them. `mistake` names the one way in which it is wrong."""

    vocabulary = 2047
    session = SimpleNamespace(dtype="float32", adapters=NAMES, model="tiny-qwen3")
    explains = True

    def __init__(
        self, oracle: LogprobOracle, assets: Path, scratch: Path, mistake: str = "", caching: bool = False
    ) -> None:
        self.oracle, self.mistake, self._assets, self._caching = oracle, mistake, assets, caching
        self.peer = SimpleNamespace(logprobs=self._peer, learn=lambda name, meaning: None)
        self.workspace = SimpleNamespace(scratch=scratch, faults=())
        self.life = SimpleNamespace(mortal=self._mortal, died_of=set())
        self.loop = SimpleNamespace(run_until_complete=asyncio.run)
        self.engine = self
        self._folders = {name: self.adapter_folder(name) for name in NAMES}
        self._slots: list[tuple[str | None, Adapter]] = [("", {})] * SLOTS
        self._pinned: set[str] = set()
        self._loads: dict[Path, int] = {}
        self._cache: dict[tuple[object, ...], np.ndarray] = {}
        self.tokenizer_manager = SimpleNamespace(
            lora_registry=SimpleNamespace(_registry={n: SimpleNamespace(lora_id=f"id-{n}") for n in NAMES})
        )

    def adapter_folder(self, name: str) -> Path:
        return self._assets / "tiny-qwen3/adapters" / name

    @property
    def loaded(self) -> set[str]:
        return set(self._folders)

    def load_lora_adapter(self, name: str, path: str, pinned: bool = False) -> SimpleNamespace:
        folder = Path(path)
        if self.mistake == "accepts-all" and (folder / "adapter_config.json").exists():
            refusal = ""
        elif name in self._folders:
            refusal = "already loaded"
        elif not folder.exists():
            refusal = "no such path"
        elif pinned and len(self._pinned) == SLOTS - 1:
            refusal = "cannot pin all slots"
        else:
            refusal = {
                "weights-truncated": "not a safetensors file",
                "rank-above-max": "rank",
                "other-base": "shape",
            }.get(folder.name.removeprefix("refused-"), "")
        if refusal:
            return SimpleNamespace(success=False, error_message="no" if self.mistake == "unclear" else refusal)
        self._folders[name] = folder
        if pinned:
            self._pinned.add(name)
        return SimpleNamespace(success=True, error_message="")

    def unload_lora_adapter(self, name: str) -> SimpleNamespace:
        if name not in self._folders:
            return SimpleNamespace(success=False, error_message=f"{name} is unknown")
        del self._folders[name]
        self._pinned.discard(name)
        if self.mistake != "stale":
            self._slots = [("", kept) if held == name else (held, kept) for held, kept in self._slots]
        return SimpleNamespace(success=True, error_message="")

    async def async_load_lora_adapter(self, name: str, path: str) -> SimpleNamespace:
        return self.load_lora_adapter(name, path)

    async def async_generate(self, **request: Any) -> list[dict[str, Any]]:
        if request["sampling_params"][0]["max_new_tokens"] > len(GENERATED):
            await asyncio.sleep(0.15)
        return self.generate(**request)

    def generate(
        self,
        input_ids: Sequence[Sequence[int]],
        sampling_params: Sequence[dict[str, Any]],
        logprob_start_len: Sequence[int],
        lora_path: Sequence[str | None],
        **further: Any,
    ) -> list[dict[str, Any]]:
        if self.mistake == "dies":
            raise Dying
        rows = zip(input_ids, sampling_params, logprob_start_len, lora_path, strict=True)
        return [
            self._row(tuple(prompt), sampling["max_new_tokens"], start, name, further)
            for prompt, sampling, start, name in rows
        ]

    def _row(self, prompt: tuple[int, ...], new: int, start: int, name: str | None, further: Any) -> dict[str, Any]:
        if name is not None and name not in self._folders:
            raise ValueError(f"adapter {name} is not loaded")
        text = (*prompt, *(GENERATED * new)[:new])
        key = (prompt, None if self.mistake == "cache-without-adapter" else (name, str(self._folders.get(name or ""))))
        cached = key in self._cache
        values = self._cache[key] if cached else self._answer(text, name)
        if self._caching:
            self._cache[key] = values
        entries = [(None, text[0], None), *((v, t, None) for v, t in zip(values, text[1:], strict=True))]
        prompts = [] if start < 0 else [(None, prompt[start], None), *entries[start + 1 : len(prompt)]]
        meta = {
            "id": "r",
            "input_token_logprobs": prompts,
            "output_token_logprobs": entries[len(prompt) :],
            "cached_tokens": len(prompt) - 1 if cached else 0,
        }
        return {"meta_info": meta}

    def _answer(self, text: tuple[int, ...], name: str | None) -> np.ndarray:
        noise = np.random.default_rng(len(text)).normal(size=len(text) - 1)
        return self.oracle.supposing(self._in_slot(name), text) + NOISE * noise

    def _in_slot(self, name: str | None) -> Adapter:
        for place, (held, adapter) in enumerate(self._slots):
            if held == name and held != "":
                self._slots.append(self._slots.pop(place))  # the last is the one most recently used
                return adapter
        free = [place for place, (held, _) in enumerate(self._slots) if held not in self._pinned]
        _, old = self._slots.pop(next((p for p in free if self._slots[p][0] == ""), free[0]))
        adapter = self._read(name)
        if self.mistake == "no-zero-fill" and name is not None:
            adapter = {**old, **adapter}
        self._slots.append((name, adapter))
        return adapter

    def _read(self, name: str | None) -> Adapter:
        if name is None:
            return {}
        folder = self._folders[name]
        adapter = read_adapter(folder)
        self._loads[folder] = self._loads.get(folder, 0) + 1
        if self.mistake == "scaled-again" and self._loads[folder] > 1:
            return {module: replace(low, scaling=low.scaling**2) for module, low in adapter.items()}
        if self.mistake == "head-lost" and self._loads[folder] > 1:
            return {module: low for module, low in adapter.items() if module != "lm_head"}
        return adapter

    def _peer(self, prompt: Sequence[int], label: str | None) -> np.ndarray:
        noise = np.random.default_rng(len(prompt) + 1).normal(size=len(prompt) - 1)
        return self.oracle.logprobs(prompt, label) + NOISE * noise

    def together(self, prompts: Sequence[Sequence[int]], names: Sequence[str | None]) -> list[object]:
        sampling = [{"max_new_tokens": 1}] * len(prompts)
        return [*self.generate(prompts, sampling, [0] * len(prompts), names)]

    def open_session(self, capacity: int) -> str:
        return "s"

    def close_session(self, session: str) -> None:
        pass

    @contextmanager
    def _mortal(self, risk: str) -> Iterator[None]:
        try:
            yield
        except Dying:
            self.__init__(self.oracle, self._assets, self.workspace.scratch)  # type: ignore[misc]
            raise EngineDied("gone") from None


@pytest.fixture(scope="module")
def oracle(assets: Path) -> LogprobOracle:
    return LogprobOracle(assets / "tiny-qwen3", {name: assets / "tiny-qwen3/adapters" / name for name in NAMES})


@pytest.fixture(scope="module")
def engine(oracle: LogprobOracle, assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Engine]:
    scratch = tmp_path_factory.mktemp("scratch")
    return lambda mistake="", **further: Engine(oracle, assets, scratch, mistake, **further)


def life(program: str, operations: int = 0, seed: int = 1) -> AdapterLife:
    return AdapterLife(program=program, adapters=NAMES, slots=SLOTS, operations=operations, seed=seed)


def red(result: CheckResult) -> set[str]:
    return {m.name for m in result.measurements if not m.within}


@pytest.mark.parametrize("spec", [life("walk", 30), life("one-slot"), life("reload")], ids=lambda spec: spec.program)
def test_a_right_engine_is_green_and_left_as_it_was(engine: Callable[..., Engine], spec: AdapterLife) -> None:
    right = engine()
    result = adapter_life.check(spec, right)
    assert red(result) == set()
    assert result.evidence["done"] == result.evidence["operations"]
    assert right.loaded == {*NAMES}
    assert {"wrong_answers", "max_abs_error", "mean_half_square"} <= {m.name for m in result.measurements if m.judged}


@pytest.mark.parametrize(
    ("mistake", "program", "says"),
    [
        ("stale", "reload", "query-value@1, which stood under this name before (operation 1)"),
        ("no-zero-fill", "one-slot", "the own weights, and what stayed of"),
        ("scaled-again", "reload", "its scaling is"),
        ("head-lost", "one-slot", "its output head part dropped"),
    ],
)
def test_a_mistake_is_red_named_and_cleaned_up(
    engine: Callable[..., Engine], mistake: str, program: str, says: str
) -> None:
    wrong = engine(mistake)
    result = adapter_life.check(life(program), wrong)
    assert red(result) >= {"wrong_answers", "max_abs_error"}
    assert says in result.evidence["says"]
    assert 0 < result.evidence["operation"] < result.evidence["done"] == result.evidence["operations"]
    assert result.evidence["red"] and result.evidence["since_load"] and result.evidence["likeliest"]
    (told,) = [m for m in result.measurements if m.name == "wrong_answers"]
    first = rf"operation {result.evidence['operation']}: (row \d of \d, )?\S+ \(\S+\), "
    assert re.match(first + r"token \d+: -[\d.]+, by the oracle -[\d.]+; permitted [\d.e-]+ nat", told.where)
    assert wrong.loaded == {*NAMES}


@pytest.mark.parametrize("mistake", ["stale", "no-zero-fill", "scaled-again"])
def test_a_walk_sees_each_mistake(engine: Callable[..., Engine], mistake: str) -> None:
    result = adapter_life.check(life("walk", 50), engine(mistake))
    assert "wrong_answers" in red(result)
    first = result.evidence["operation"]
    assert result.evidence["red"][0].startswith(f"operation {first}: ")
    assert red(adapter_life.check(life("walk", first - 1), engine(mistake))) == set()


@pytest.mark.parametrize("kind", Refusal)
def test_a_clear_refusal_is_green(engine: Callable[..., Engine], kind: Refusal) -> None:
    assert red(adapter_life.check(life(f"refused-{kind}"), engine())) == set()
    assert CAUSES[kind]


@pytest.mark.parametrize("kind", [Refusal.RANK, Refusal.OTHER_BASE, Refusal.TRUNCATED])
def test_what_must_be_refused_and_is_loaded_is_red_and_does_not_stay(
    engine: Callable[..., Engine], kind: Refusal
) -> None:
    careless = engine("accepts-all")
    assert red(adapter_life.check(life(f"refused-{kind}"), careless)) == {"wrongly_accepted"}
    assert careless.loaded == {*NAMES}


def test_a_refusal_without_its_cause_is_red(engine: Callable[..., Engine]) -> None:
    assert red(adapter_life.check(life("refused-no-folder"), engine("unclear"))) == {"unclear_refusals"}


def test_a_death_is_measured(engine: Callable[..., Engine]) -> None:
    result = adapter_life.check(life("reload"), engine("dies"))
    assert red(result) == {"engine_deaths"}
    assert result.evidence["operation"] == 1 and result.evidence["red"] == ["the engine died"]


def test_first_requests(engine: Callable[..., Engine]) -> None:
    spec = FirstRequests(adapters=NAMES, slots=SLOTS, times=3, seed=1)
    right = engine()
    result = first_requests.check(spec, right)
    assert red(result) == set()
    assert result.evidence["beside_in_flight"] == len(NAMES)
    assert right.loaded == {*NAMES}
    assert "wrong_answers" in red(first_requests.check(spec, engine("scaled-again")))


def cached(carried: str) -> CachedIdentities:
    return CachedIdentities(adapters=NAMES[:2], carried=carried, prompt_length=12, seed=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("carried", ["nothing", "priority", "sampling", "session-id", "reload"])
def test_a_cache_that_keeps_identities_apart_is_green(engine: Callable[..., Engine], carried: str) -> None:
    right = engine(caching=True)
    assert red(cached_identities.check(cached(carried), right)) == set()
    assert right.loaded == {*NAMES}


@pytest.mark.parametrize("carried", ["nothing", "reload"])
def test_a_cache_without_the_adapter_in_its_key_is_red_and_named(engine: Callable[..., Engine], carried: str) -> None:
    result = cached_identities.check(cached(carried), engine("cache-without-adapter", caching=True))
    assert {"cached_tokens_of_others", "wrong_answers"} <= red(result)
    assert result.evidence["says"] and result.evidence["asked"]
    where = {m.name: m.where for m in result.measurements}
    who = "request 2: mlp found" if carried == "nothing" else "request 3: base found"
    assert where["cached_tokens_of_others"].startswith(who.replace("mlp", NAMES[0]))
    assert re.search(r"request \d, \S+ \(\S+\), token \d+: -", where["wrong_answers"])


def test_every_kind_of_company_is_known() -> None:
    planned = CachedIdentities.model_fields["carried"].annotation.__args__  # type: ignore[union-attr]
    assert {*planned} == cached_identities._CARRIED.keys() | cached_identities._PLANS.keys()


def test_the_model_has_these_adapters() -> None:
    assert {*NAMES} <= {adapter.name for adapter in TINY_QWEN3.all_adapters}
