"""Changes the faults of an open subject, so that one start answers for many of them."""

import importlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kit.errors import UsageFault
from kit.faults.catalogue import FAULTS
from kit.faults.kernels import changed_kernels
from kit.plan import InjectedFault
from kit.subjects.workspace import Workspace

if TYPE_CHECKING:
    from kit.subjects import Subject
    from kit.subjects.kernels.subject import KernelSubject, LoraSubject
    from kit.subjects.sglang_engine import SGLangSubject

Faults = tuple[InjectedFault, ...]


class SwitchedSubject:
    """An open subject, as it is under the faults of one case after another.

    Args:
        subject: as it was opened. workspace: with which it was opened; its faults are always active.
    """

    def __init__(self, subject: "Subject", workspace: Workspace) -> None:
        self._subject = subject
        self._workspace = workspace
        self._faults: Faults = workspace.faults
        self._edition = 0

    def under(self, faults: Faults, edition: int = 0) -> "Subject":
        """The subject under these faults and those of its workspace. What was given before must not be asked any more.

        Args:
            edition: of an engine's adapters (`kit.subjects.session_adapters`).

        Raises:
            RuntimeError: the engine refuses an altered adapter. UsageFault: a subject whose faults cannot be changed.
        """
        wanted = (*self._workspace.faults, *faults)
        if (wanted, edition) != (self._faults, self._edition):
            self._subject = self._changed(wanted, edition)
            self._faults, self._edition = wanted, edition
        return self._subject

    def _changed(self, wanted: Faults, edition: int) -> "Subject":
        """Only the kind of subject that is there is imported: others take seconds that count as the case's."""
        from kit.subjects.null import NullSubject

        subject = self._subject
        if isinstance(subject, NullSubject):
            return subject
        from kit.subjects.offline import OfflineSubject

        if isinstance(subject, OfflineSubject):
            return replace(subject, faults=wanted)
        from kit.subjects.kernels.subject import KernelSubject, LoraSubject

        if isinstance(subject, KernelSubject | LoraSubject):
            return _kernels_under(subject, wanted, self._workspace)
        from kit.subjects.sglang_engine import SGLangSubject

        if isinstance(subject, SGLangSubject):
            anew = edition != self._edition or any(map(_touches_adapters, (*self._faults, *wanted)))
            return engine_under(subject, wanted, anew, edition)
        raise UsageFault(f"the faults of a {type(subject).__name__} cannot be changed", "use 'kit run --inject'")


def engine_under(
    subject: "SGLangSubject", faults: Faults, adapters_anew: bool = True, edition: int = 0
) -> "SGLangSubject":
    """The same engine under other faults, with an empty radix cache; oracle and peer stay while the edition does.

    Args:
        adapters_anew: load every adapter anew, so that nothing is left of a fault in adapters or in how they were loaded.
        edition: of the adapters; another than before must be loaded anew.

    Raises:
        RuntimeError: the engine refuses an adapter, or it was not started to have its faults changed.
    """
    from kit.faults.apply import served_adapters
    from kit.subjects.session_adapters import forget_edition, original_adapters

    before = subject.workspace
    if subject.plugin is None:
        raise RuntimeError("this engine was not started to have its faults changed")
    if adapters_anew:
        subject.plugin.activate(())
        for name in subject.session.adapters:
            _done(subject.engine.unload_lora_adapter(name), name)
    subject.plugin.activate(faults)
    if adapters_anew:
        originals = original_adapters(subject.session, before, edition)
        served = served_adapters(faults, originals, before.scratch / "switched" / "-".join(f.name for f in faults))
        for name in subject.session.adapters:
            _done(subject.engine.load_lora_adapter(name, str(served[name])), name)
    subject.engine.flush_cache()
    workspace = replace(before, faults=faults)
    other = replace(subject, workspace=workspace, edition=edition, _first_whole={}, _first_answers={}, _texts={})
    if edition != subject.edition:
        forget_edition(before, subject.edition)
        return other
    for kept in ("oracle", "peer"):
        if kept in vars(subject):
            vars(other)[kept] = vars(subject)[kept]
    return other


def _touches_adapters(fault: InjectedFault) -> bool:
    return FAULTS[fault.name].acts_on == "adapters" or fault.name.startswith(("load-", "evict-"))


def _done(result: Any, adapter: str) -> None:
    if not result.success:
        raise RuntimeError(f"the engine refuses adapter {adapter}: {result.error_message}")


def _kernels_under(
    subject: "KernelSubject | LoraSubject", faults: Faults, workspace: Workspace
) -> "KernelSubject | LoraSubject":
    """SGLang's Triton kernels, read again with the faults in their source."""
    from kit.subjects.kernels.subject import LoraSubject

    place = workspace.scratch / "switched" / "-".join(fault.name for fault in faults)
    changed = replace(workspace, scratch=place, faults=faults)
    _forget_kernels()
    if isinstance(subject, LoraSubject):
        from kit.subjects.kernels.lora import open_lora

        return replace(subject, library=open_lora(subject.library.backend, subject.device, changed))
    from kit.subjects.kernels.opening import open_sglang_triton
    from kit.subjects.kernels.sglang_triton import SGLangTriton

    if not isinstance(subject.library, SGLangTriton):
        raise UsageFault("only the faults of SGLang's Triton kernels can be changed", "leave the others out")
    return replace(subject, library=open_sglang_triton(subject.device, changed))


def _forget_kernels() -> None:
    for name in [name for name in sys.modules if name.rpartition(".")[2] in changed_kernels()]:
        del sys.modules[name]
    importlib.invalidate_caches()
