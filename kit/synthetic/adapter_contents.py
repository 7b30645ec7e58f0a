"""The files that programs of an adapter's life load (`kit.synthetic.adapter_walk`): sound ones of any edition, and those to refuse."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from kit.synthetic.adapter_files import write_variant
from kit.synthetic.adapter_variants import find_variant
from kit.synthetic.adapter_walk import Content, Refusal
from kit.synthetic.catalogue import AdapterShape, ModelShape
from kit.synthetic.files import adapter_files

CAUSES = MappingProxyType(
    {
        Refusal.NEVER_LOADED: find_variant("name-never-loaded").causes,
        Refusal.NO_FOLDER: find_variant("no-folder").causes,
        Refusal.TRUNCATED: find_variant("weights-truncated").causes,
        Refusal.RANK: find_variant("rank-above-max").causes,
        Refusal.OTHER_BASE: find_variant("other-base").causes,
        Refusal.LOADED_NAME: find_variant("loaded-name").causes,
        Refusal.UNLOAD_UNKNOWN: (
            "not loaded",
            "never been loaded",
            "unknown",
            "not exist",
            "not found",
            "not registered",
        ),
        Refusal.TOO_MANY_PINNED: ("pin",),
    }
)
"""Words of which a clear refusal holds at least one, in lower case."""


def write_content(model: ModelShape, content: Content, folder: Path) -> None:
    """Write the files of these weights; rank, alpha, strength and modules are the shape's.

    Raises:
        StopIteration: the model has no such shape.
    """
    shape = next(adapter for adapter in model.all_adapters if adapter.name == content.shape)
    _write(model, replace(shape, name=content.label), folder)


def write_refused(kind: Refusal, model: ModelShape, sound: Path, max_rank: int, folder: Path) -> None:
    """Write the files that the kind is about; for most there are none.

    Args:
        sound: folder of a sound adapter of the model. max_rank: the largest that the engine takes.
    """
    match kind:
        case Refusal.RANK:
            _write(model, AdapterShape("rank-above-max", rank=2 * max_rank, alpha=3 * max_rank), folder)
        case Refusal.TRUNCATED | Refusal.OTHER_BASE:
            write_variant(kind, sound, folder)


def _write(model: ModelShape, shape: AdapterShape, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, data in adapter_files(model, shape).items():
        (folder / name).write_bytes(data)
