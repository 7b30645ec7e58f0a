"""SGLang on a real model with its adapter, both pinned assets; beside it the text that the adapter's trainer recorded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.checks.recorded_sample import SAMPLE_FILE, RecordedSample, load_sample
from kit.errors import EnvironmentFault
from kit.faults.apply import served_adapters
from kit.plan import PinnedFolder, PinnedModelSession
from kit.subjects.device import device_facts
from kit.subjects.engine_life import EngineLife
from kit.subjects.sglang_engine import (
    Served,
    device_of,
    engine_facts,
    prompt_logprobs,
)
from kit.subjects.workspace import Workspace

ADAPTER = "adapter"
"""The name under which the adapter is served."""


@dataclass(frozen=True)
class PinnedModelSubject:
    """A running engine.

    Attributes:
        sample: the recorded text. facts: versions, device, settings, assets.
    """

    engine: Any
    sample: RecordedSample
    facts: dict[str, str]

    def logprobs(self, identity: str | None) -> Served:
        """What the engine says of the sample's text, in a request of its own; `identity` None is the base model."""
        return prompt_logprobs(self.engine, [self.sample.tokens.tolist()], [identity])[0]


def engine_arguments(session: PinnedModelSession, model: Path, adapter: Path) -> dict[str, Any]:
    """Keyword arguments of `sglang.Engine`; what the session says wins.

    Beside it only what the upstream tests give too, and what keeps an engine without text and network: no tokenizer.
    """
    arguments: dict[str, Any] = {
        "model_path": str(model),
        "enable_lora": True,
        "lora_paths": [f"{ADAPTER}={adapter}"],
        "skip_tokenizer_init": True,
        "random_seed": 0,
        "log_level": "info",
    }
    return arguments | session.engine


@contextmanager
def open_pinned_model(
    session: PinnedModelSession, workspace: Workspace, stand_ins: dict[str, str]
) -> Iterator[PinnedModelSubject]:
    """A warm engine. If one of its processes dies, this process ends at once (`kit.subjects.engine_life`).

    Raises:
        EnvironmentFault: no device, or an asset is not as planned. ImageFault: the recorded sample cannot be read.
    """
    model, adapter = (folder_of(asset, workspace) for asset in session.assets)
    sample = load_sample(adapter / SAMPLE_FILE)
    served = served_adapters(workspace.faults, {ADAPTER: adapter}, workspace.scratch)
    arguments = engine_arguments(session, model, served[ADAPTER])
    device = device_facts(device_of(session.engine))
    told = {asset.name: asset.revision for asset in session.assets}
    facts = {"model": session.model.name} | {f"asset.{name}": revision for name, revision in told.items()}
    facts |= engine_facts(session, workspace, arguments) | device | stand_ins
    start = sample.tokens[:4].tolist()
    with EngineLife(arguments, lambda engine: prompt_logprobs(engine, [start, start], [None, ADAPTER])) as life:
        yield PinnedModelSubject(life.engine, sample, facts)


def folder_of(asset: PinnedFolder, workspace: Workspace) -> Path:
    """The folder of an asset, with all its files in their sizes. Their content was held against SHA-256 by the host.

    Raises:
        EnvironmentFault: a file is missing or has another size.
    """
    if workspace.pinned is None:
        raise EnvironmentFault(
            f"the worker was given no pinned assets, and needs {asset.name}", "start it with --pinned"
        )
    folder = workspace.pinned / asset.folder
    for file in asset.files:
        try:
            size = (folder / file.path).stat().st_size
        except OSError as error:
            problem = f"asset {asset.name}: {file.path} cannot be read: {error.strerror}"
        else:
            if size == file.size:
                continue
            problem = f"asset {asset.name}: {file.path} has {size:,} bytes, the plan says {file.size:,}"
        raise EnvironmentFault(problem, f"run 'kit assets verify {asset.name}'")
    return folder
