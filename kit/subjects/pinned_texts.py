"""SGLang on a real model with several adapters, pinned assets all; beside it the model's tokenizer and plain transformers."""

import ast
import importlib.util
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kit.errors import ImageFault
from kit.faults.apply import served_adapters, served_logprobs
from kit.oracles.limits import Dtype
from kit.oracles.reference import LogprobOracle
from kit.plan import InjectedFault, PinnedTextsSession
from kit.subjects.continued import Continued, continued
from kit.subjects.device import device_facts
from kit.subjects.engine_life import EngineLife
from kit.subjects.pinned_model import folder_of
from kit.subjects.sglang_engine import device_of, engine_facts
from kit.subjects.transformers_peer import TransformersPeer
from kit.subjects.workspace import Workspace

_PROMPTS = "TEST_MULTIPLE_BATCH_PROMPTS"
_Question = tuple[tuple[str | None, ...], tuple[tuple[int, ...], ...], int, bool]


@dataclass(frozen=True)
class PinnedTextsSubject:
    """A running engine. It is sent token ids, and no token ends a text: both sides are cut alike (`kit.checks.texts.ended`).

    Attributes:
        prompts: upstream's, as token ids. tokenizer: of transformers. ends: tokens that end a text.
        dtype: of weights and activations. facts: versions, device, settings, assets.
    """

    engine: Any
    peer: TransformersPeer
    tokenizer: Any
    prompts: tuple[tuple[int, ...], ...]
    ends: frozenset[int]
    dtype: Dtype
    facts: dict[str, str]
    faults: tuple[InjectedFault, ...] = ()
    _answers: dict[_Question, list[Continued]] = field(default_factory=dict)

    @property
    def oracle(self) -> LogprobOracle | None:
        """None: a real model is too large for it."""
        return None

    def text(self, tokens: Sequence[int]) -> str:
        """As upstream has it: without special tokens, without white space around."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    def continued(
        self,
        prompts: Sequence[Sequence[int]],
        identities: Sequence[str | None],
        new_tokens: int,
        with_prompt: bool = False,
    ) -> list[Continued]:
        """As `kit.subjects.continued.continued`; the same question again gets the first answer."""
        key = (tuple(identities), tuple(map(tuple, prompts)), new_tokens, with_prompt)
        if key not in self._answers:
            answers = continued(self.engine, prompts, identities, new_tokens, with_prompt)
            self._answers[key] = [replace(a, logprobs=served_logprobs(self.faults, a.logprobs)) for a in answers]
        return self._answers[key]


@contextmanager
def open_pinned_texts(
    session: PinnedTextsSession, workspace: Workspace, stand_ins: dict[str, str]
) -> Iterator[PinnedTextsSubject]:
    """A warm engine. If one of its processes dies, this process ends at once (`kit.subjects.engine_life`).

    Raises:
        EnvironmentFault: no device, or an asset is not as planned. ImageFault: SGLang has not the prompts, or an adapter is damaged.
    """
    from transformers import AutoTokenizer

    model = folder_of(session.model, workspace)
    adapters = {name: folder_of(asset, workspace) for name, asset in session.adapters.items()}
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    prompts = tuple(tuple(int(token) for token in tokenizer.encode(text)) for text in upstream_prompts())
    readable = {name: readable_adapter(folder, workspace.scratch / "peer" / name) for name, folder in adapters.items()}
    peer = TransformersPeer(model, readable, session.dtype, device_of(session.engine))
    served = served_adapters(workspace.faults, adapters, workspace.scratch)
    arguments: dict[str, Any] = {
        "model_path": str(model),
        "dtype": session.dtype,
        "enable_lora": True,
        "lora_paths": [f"{name}={folder}" for name, folder in served.items()],
        "skip_tokenizer_init": True,
        "random_seed": 42,
        "log_level": "info",
    } | session.engine
    facts = {"model": session.model.name, "dtype": session.dtype}
    facts |= {f"asset.{asset.name}": asset.revision for asset in session.assets}
    facts |= engine_facts(session, workspace, arguments) | device_facts(device_of(session.engine)) | stand_ins
    start = prompts[0][:4]
    with EngineLife(arguments, lambda engine: continued(engine, [start], [None], 2)) as life:
        yield PinnedTextsSubject(
            life.engine, peer, tokenizer, prompts, ends_of(model), session.dtype, facts, workspace.faults
        )


def upstream_prompts() -> list[str]:
    """The prompts of SGLang's text tests, read from the SGLang that is installed, without running its test code.

    Raises:
        ImageFault: it has none.
    """
    found = importlib.util.find_spec("sglang")
    places = found.submodule_search_locations if found else None
    path = Path(next(iter(places or ["sglang"]))) / "test" / "lora_utils.py"
    try:
        tree = ast.parse(path.read_bytes())
        value = next(
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == _PROMPTS for t in node.targets)
        )
        prompts = ast.literal_eval(value)
    except (OSError, SyntaxError, StopIteration, ValueError):
        raise ImageFault(
            f"{path}: SGLang has no {_PROMPTS} there", "use an image whose SGLang ships its tests"
        ) from None
    return [str(prompt) for prompt in prompts]


def ends_of(model: Path) -> frozenset[int]:
    """``eos_token_id`` of generation_config.json, else of config.json: one or several."""
    for name in ("generation_config.json", "config.json"):
        path = model / name
        ends = json.loads(path.read_bytes()).get("eos_token_id") if path.exists() else None
        if ends is not None:
            return frozenset(ends if isinstance(ends, list) else [ends])
    return frozenset()


def readable_adapter(folder: Path, copy: Path) -> Path:
    """The adapter as `kit.oracles.reference.read_adapter` takes it: safetensors, and what older files leave unsaid written out.

    A pickle (``adapter_model.bin``) is read without running any code that it may hold.

    Raises:
        ImageFault: no weights, or a pickle that holds more than tensors.
    """
    import torch
    from safetensors.torch import save_file

    copy.mkdir(parents=True, exist_ok=True)
    config = json.loads((folder / "adapter_config.json").read_bytes())
    (copy / "adapter_config.json").write_text(json.dumps({"use_rslora": False} | config))
    weights, pickled = copy / "adapter_model.safetensors", folder / "adapter_model.bin"
    if (folder / weights.name).exists():
        weights.symlink_to(folder / weights.name)
        return copy
    try:
        tensors = torch.load(pickled, map_location="cpu", weights_only=True)
        save_file({name: tensor.float().contiguous() for name, tensor in tensors.items()}, weights)
    except Exception as error:  # torch tells of a damaged or dangerous file by many kinds of exceptions
        why = type(error).__name__
        raise ImageFault(f"{pickled}: cannot be read as tensors alone ({why})", "fetch the asset again") from None
    return copy
