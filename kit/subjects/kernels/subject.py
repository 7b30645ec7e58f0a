"""A kernel session's subject: one library, and the plain peer beside it."""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.attention_spec import AttentionSpec
from kit.errors import EnvironmentFault
from kit.oracles.metrics import Values
from kit.plan import KernelSession
from kit.subjects.device import device_facts, versions
from kit.subjects.kernels.library import AttentionLibrary
from kit.subjects.workspace import Workspace
from kit.synthetic.attention import AttentionInputs, Request

if TYPE_CHECKING:
    from kit.subjects.kernels.expert_lora import ExpertLoraKernels
    from kit.subjects.kernels.lora import LoraKernels

PACKAGES = ("triton", "torch", "sglang", "sglang-kernel", "numpy", "wave-lang", "flashinfer-python", "flash-attn-4")
_INTERPRET = "TRITON_INTERPRET"


@dataclass(frozen=True)
class KernelSubject:
    """Attributes: facts: versions, device, where the kernels come from."""

    library: AttentionLibrary
    device: str
    facts: dict[str, str]

    def plain(self, spec: AttentionSpec, inputs: AttentionInputs, requests: Iterable[Request]) -> Values:
        """The peer's answer, [new tokens, query_heads, value_dim]."""
        from kit.subjects.kernels import peer

        return peer.plain(spec, inputs, requests, self.device)


@dataclass(frozen=True)
class LoraSubject:
    """One LoRA backend; its libraries have the peer too. Attributes: facts: as for `KernelSubject`."""

    library: "LoraKernels"
    experts: "ExpertLoraKernels"
    device: str
    facts: dict[str, str]


def open_kernels(
    session: KernelSession, stand_ins: dict[str, str], workspace: Workspace
) -> KernelSubject | LoraSubject:
    """The library of this session on its device.

    Raises:
        EnvironmentFault: no GPU, the library is not installed, or an interpreter where a compiled kernel was asked for.
        UsageFault: an unknown fault, or one that the installed kernels give no place for.
    """
    if session.interpreted:
        os.environ[_INTERPRET] = "1"
    elif os.environ.get(_INTERPRET, "0") not in ("", "0"):
        raise EnvironmentFault(f"{_INTERPRET} is set, so no kernel would reach the GPU", f"unset {_INTERPRET}")
    if "triton" in sys.modules:
        raise EnvironmentFault("triton was imported before its mode was set", "open the subject in a fresh process")
    device = "cpu" if session.interpreted else "cuda"
    facts = device_facts(device) | stand_ins
    facts |= versions(PACKAGES) | {"library": session.library, "peer": "torch, same dtype and device"}
    facts |= {f"environment.{name}": value for name, value in session.environment.items()}
    from kit.subjects.kernels.opening import installed

    with installed(session.library):
        if session.library in ("lora-triton", "lora-csgmv"):
            from kit.subjects.kernels.expert_lora import ExpertLoraKernels
            from kit.subjects.kernels.lora import open_lora

            backend = open_lora(session.library.removeprefix("lora-"), device, workspace)
            return LoraSubject(backend, ExpertLoraKernels(backend.backend, device), device, facts | backend.facts)
        library = _open(session, device, workspace)
    return KernelSubject(library, device, facts | library.facts)


def _open(session: KernelSession, device: str, workspace: Workspace) -> AttentionLibrary:
    match session.library:
        case "triton":
            from kit.subjects.kernels.opening import open_sglang_triton

            return open_sglang_triton(device, workspace)
        case "wave":
            from kit.subjects.kernels.opening import open_sglang_wave

            return open_sglang_wave()
        case "flashinfer":
            from kit.subjects.kernels.opening import open_flashinfer

            return open_flashinfer()
        case "fa3" | "fa4":
            from kit.subjects.kernels.opening import open_flash_attention

            return open_flash_attention(int(session.library.removeprefix("fa")))
        case "torch":
            from kit.subjects.kernels.torch_sdpa import TorchAttention

            return TorchAttention(device)
        case _:
            raise AssertionError(f"{session.library} has no attention")
