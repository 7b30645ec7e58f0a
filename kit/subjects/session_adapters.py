"""Where the original files of a session's adapters lie: those of the catalogue, or weights drawn anew for one round of a self-test."""

import shutil
from pathlib import Path

from kit.names import unknown
from kit.plan import SGLangSession
from kit.subjects.workspace import Workspace
from kit.synthetic.adapter_contents import write_content
from kit.synthetic.adapter_walk import Content
from kit.synthetic.catalogue import adapter_folder, find_model


def original_adapters(session: SGLangSession, workspace: Workspace, edition: int = 0) -> dict[str, Path]:
    """Folders of the session's adapters by name.

    Args:
        edition: 0 for the catalogue's own weights; else ranks, scalings and modules are the same, and the weights drawn anew.

    Raises:
        UsageFault: the model has no such adapter.
    """
    model = find_model(session.model)
    known = {adapter.name for adapter in model.all_adapters}
    for name in session.adapters:
        if name not in known:
            raise unknown("adapter", name, known)
    if not edition:
        return {name: workspace.assets / adapter_folder(session.model, name) for name in session.adapters}
    place = _place(workspace, edition)
    for name in session.adapters:
        if not (place / name).exists():
            write_content(model, Content(name, edition), place / name)
    return {name: place / name for name in session.adapters}


def forget_edition(workspace: Workspace, edition: int) -> None:
    """Remove the files of weights that were drawn anew; nothing happens where there are none."""
    if edition:
        shutil.rmtree(_place(workspace, edition), ignore_errors=True)


def _place(workspace: Workspace, edition: int) -> Path:
    return workspace.scratch / "editions" / str(edition)
