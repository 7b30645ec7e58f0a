"""Adapters loaded and unloaded while the engine serves, and what it answers. SGLang 0.5.17 and 0.5.19 agree in all that is used."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.subjects.sglang_engine import Served, SGLangSubject


@dataclass(frozen=True)
class Reply:
    """The engine's answer to a request.

    Attributes:
        refusal: its error, in one line; None where it did what it was asked.
        served: per prompt, where it was asked to serve and did.
    """

    refusal: str | None = None
    served: tuple[Served, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.refusal is None


def load(subject: SGLangSubject, name: str, folder: Path, pinned: bool = False) -> Reply:
    """Load the adapter in `folder` under a name; a pinned one keeps its slot."""
    further = {"pinned": True} if pinned else {}
    return _updated(lambda: subject.engine.load_lora_adapter(name, str(folder), **further))


def unload(subject: SGLangSubject, name: str) -> Reply:
    """Unload the adapter of this name."""
    return _updated(lambda: subject.engine.unload_lora_adapter(name))


def serve(subject: SGLangSubject, prompts: Sequence[Sequence[int]], name: str) -> Reply:
    """All prompts in one request, under the name of an adapter."""
    try:
        return Reply(served=tuple(subject.together(prompts, [name] * len(prompts))))
    except Exception as error:
        return Reply(told(error))


def _updated(ask: Callable[[], Any]) -> Reply:
    try:
        result = ask()
    except Exception as error:
        return Reply(told(error))
    return updated(result)


def updated(result: Any) -> Reply:
    """SGLang's answer to a load or unload, as a reply."""
    return Reply() if result.success else Reply(_one_line(result.error_message))


def told(error: Exception) -> str:
    """An exception in one line."""
    return _one_line(f"{type(error).__name__}: {error}")


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())[:500]
