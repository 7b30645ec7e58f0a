"""Adapters whose weights come and go under a name, on a running engine: their files in scratch, and what the oracle knows them as."""

import shutil
from pathlib import Path

from kit.oracles.peft_meaning import Meaning
from kit.oracles.reference import read_adapter
from kit.subjects.adapter_loading import Reply, load, serve, unload
from kit.subjects.sglang_engine import SGLangSubject
from kit.synthetic.adapter_contents import write_content, write_refused
from kit.synthetic.adapter_walk import Content, Refusal
from kit.synthetic.catalogue import find_model

_PROBE = (1, 2, 3)


class LoadedContents:
    """Files of contents, written once per session, and asked for what must be refused.

    Attributes:
        wrongly_loaded: names that should have been refused and were loaded.
    """

    def __init__(self, subject: SGLangSubject) -> None:
        self._subject = subject
        self._model = find_model(subject.session.model)
        self.wrongly_loaded: list[str] = []

    def folder(self, content: Content) -> Path:
        """Where the files of these weights lie; oracle and peer know them by their label from now on."""
        folder = self._subject.workspace.scratch / "contents" / content.label
        if not folder.exists():
            write_content(self._model, content, folder)
        if content.label not in self._subject.oracle.adapters:
            meaning = Meaning(read_adapter(folder), {})
            self._subject.oracle.learn(content.label, meaning)
            self._subject.peer.learn(content.label, meaning)
        return folder

    def known(self, content: Content | None) -> str | None:
        """What the oracle knows these weights as; None for the base model."""
        if content is None:
            return None
        if content.edition:
            self.folder(content)
        return content.label

    def refused(self, kind: Refusal, name: str) -> Reply:
        """Ask what must be refused."""
        match kind:
            case Refusal.NEVER_LOADED:
                return self.serve_unknown(name)
            case Refusal.UNLOAD_UNKNOWN:
                return unload(self._subject, name)
            case Refusal.LOADED_NAME | Refusal.TOO_MANY_PINNED:
                sound = self.folder(Content(self._model.adapters[-1].name, 1))
                reply = load(self._subject, name, sound, pinned=kind is Refusal.TOO_MANY_PINNED)
            case _:
                reply = load(self._subject, name, self._damaged(kind))
        if reply.accepted:
            self.wrongly_loaded.append(name)
        return reply

    def serve_unknown(self, name: str) -> Reply:
        """A request for a name under which nothing is loaded."""
        return serve(self._subject, [_PROBE], name)

    def _damaged(self, kind: Refusal) -> Path:
        folder = self._subject.workspace.scratch / "contents" / f"refused-{kind}"
        shutil.rmtree(folder, ignore_errors=True)
        largest = max(adapter.rank for adapter in self._model.all_adapters)
        sound = self._subject.adapter_folder(self._model.adapters[0].name)
        write_refused(kind, self._model, sound, largest, folder)
        return folder
