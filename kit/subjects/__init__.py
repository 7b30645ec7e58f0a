"""What is under test, one file per backend. Importing this package is light; opening a subject is not."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, Union

from kit.plan import (
    Case,
    CollectiveSession,
    KernelSession,
    NullSession,
    OfflineSession,
    PinnedModelSession,
    PinnedTextsSession,
    SessionSpec,
    SGLangSession,
)
from kit.subjects.workspace import Workspace as Workspace

if TYPE_CHECKING:
    from kit.subjects.collectives import Collectives
    from kit.subjects.kernels.subject import KernelSubject, LoraSubject
    from kit.subjects.null import NullSubject
    from kit.subjects.offline import OfflineSubject
    from kit.subjects.pinned_model import PinnedModelSubject
    from kit.subjects.pinned_texts import PinnedTextsSubject
    from kit.subjects.sglang_engine import SGLangSubject

Subject: TypeAlias = Union[
    "SGLangSubject",
    "PinnedModelSubject",
    "PinnedTextsSubject",
    "KernelSubject",
    "LoraSubject",
    "Collectives",
    "OfflineSubject",
    "NullSubject",
]


@contextmanager
def open_subject(spec: SessionSpec, workspace: Workspace) -> Iterator[Subject]:
    """The subject of a session, ready to answer; on leaving, no process of it is left.

    Call it once per process, in the main thread, before torch, triton or SGLang is imported: it sets environment
    variables, puts stand-ins on the import path, and installs signal handlers.

    Raises:
        EnvironmentFault: this machine lacks what the spec asks for.
        UsageFault: an unknown model, adapter or fault.
    """
    _set_environment(spec.environment)
    from kit.standins import activate

    stand_ins = activate(spec.stand_ins)
    match spec:
        case SGLangSession():
            from kit.subjects.sglang_engine import open_sglang

            with open_sglang(spec, workspace, stand_ins) as served:
                yield served
        case PinnedModelSession():
            from kit.subjects.pinned_model import open_pinned_model

            with open_pinned_model(spec, workspace, stand_ins) as pinned:
                yield pinned
        case PinnedTextsSession():
            from kit.subjects.pinned_texts import open_pinned_texts

            with open_pinned_texts(spec, workspace, stand_ins) as texts:
                yield texts
        case KernelSession():
            from kit.subjects.kernels.subject import open_kernels

            yield open_kernels(spec, stand_ins, workspace)
        case CollectiveSession():
            from kit.subjects.collectives import open_collectives

            with open_collectives(spec, workspace) as ranks:
                yield ranks
        case OfflineSession():
            from kit.subjects.offline import open_offline

            with open_offline(spec, workspace, stand_ins) as compilers:
                yield compilers
        case NullSession():
            from kit.subjects.null import open_null

            with open_null(spec) as null:
                yield null


def prepare_subject(spec: SessionSpec, subject: Subject, cases: Sequence[Case]) -> dict[str, str]:
    """Do ahead what the cases of an open subject would else do one after the other; gives facts about it."""
    if isinstance(spec, KernelSession):
        from kit.subjects.kernels.warm import compile_ahead

        return compile_ahead(spec, [case.spec for case in cases])
    if isinstance(spec, OfflineSession):
        from kit.subjects.offline import OfflineSubject

        assert isinstance(subject, OfflineSubject)
        subject.expect(cases)
    return {}


def _set_environment(chosen: dict[str, str]) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy, so the oracle
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.update(chosen)
