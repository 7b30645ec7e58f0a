"""SGLang's Triton attention kernels as a subject, compiled for a GPU or run in Triton's interpreter on the CPU."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from kit.errors import EnvironmentFault
from kit.oracles.metrics import Values
from kit.plan import GroupedDecode, KernelSession
from kit.subjects.device import device_facts, versions
from kit.synthetic.attention import DecodeInputs

_MODULES = (
    "sglang.kernels.ops.attention.decode_attention",  # since SGLang 0.5.17
    "sglang.srt.layers.attention.triton_ops.decode_attention",
)
_PACKAGES = ("triton", "torch", "sglang", "numpy")
_INTERPRET = "TRITON_INTERPRET"


@dataclass(frozen=True)
class TritonAttention:
    """The kernels, and a plain torch peer in the same dtype on the same device.

    Attributes:
        facts: versions, device, which module, compiled or interpreted.
    """

    session: KernelSession
    kernels: ModuleType
    device: str
    facts: dict[str, str]

    def grouped_decode(self, spec: GroupedDecode, inputs: DecodeInputs) -> Values:
        """`decode_attention_fwd_grouped` on [batch, query_heads, head_dim] → [batch, query_heads, value_dim].

        The output and both workspaces hold NaN before the call, so what the kernel does not write is seen.
        """
        import torch

        query, keys, values = (self._tensor(array) for array in (inputs.query, inputs.keys, inputs.values))
        heads = (spec.batch, spec.query_heads)
        out = torch.full((*heads, spec.value_dim), torch.nan, dtype=query.dtype, device=self.device)
        partial_out = torch.full((*heads, spec.max_kv_splits, spec.value_dim), torch.nan, device=self.device)
        partial_lse = torch.full((*heads, spec.max_kv_splits), torch.nan, device=self.device)
        starts = torch.arange(spec.batch + 1, dtype=torch.int32, device=self.device) * spec.length
        slots = torch.from_numpy(np.concatenate(inputs.pages)).to(self.device)
        splits = torch.full((spec.batch,), spec.num_kv_splits, dtype=torch.int32, device=self.device)
        decode = self.kernels.decode_attention_fwd_grouped
        positional = [query, keys, values, out, starts, slots, partial_out, partial_lse, splits, spec.max_kv_splits]
        decode(*positional, inputs.scale, *unit_scales(decode))
        return _float64(out)

    def plain_decode(self, spec: GroupedDecode, inputs: DecodeInputs) -> Values:
        """The peer: q kᵀ, softmax and the product with v, each rounded to the dtype. Shapes as `grouped_decode`."""
        import torch

        query, keys, values = (self._tensor(array) for array in (inputs.query, inputs.keys, inputs.values))
        group = spec.query_heads // spec.kv_heads
        rows = []
        for request, pages in enumerate(inputs.pages):
            slots = torch.from_numpy(pages).to(self.device)
            k, v = keys[slots].transpose(0, 1), values[slots].transpose(0, 1)
            q = query[request].view(spec.kv_heads, group, spec.head_dim)
            weights = torch.softmax((q @ k.transpose(1, 2)) * inputs.scale, dim=-1)
            rows.append((weights @ v).reshape(spec.query_heads, spec.value_dim))
        return _float64(torch.stack(rows))

    def _tensor(self, array: Any) -> Any:
        import torch

        return torch.from_numpy(array).to(self.device, getattr(torch, self.session.dtype))


def unit_scales(decode: Callable[..., object]) -> list[float]:
    """Arguments after the score scale: newer versions take ``k_scale`` or ``v_scale``, 1 without quantisation."""
    names = [name for name in ("k_scale", "v_scale") if name in inspect.signature(decode).parameters]
    return [1.0] * len(names)


def _float64(tensor: Any) -> Values:
    return np.asarray(tensor.double().cpu().numpy(), dtype=np.float64)


def open_triton(session: KernelSession, stand_ins: dict[str, str]) -> TritonAttention:
    """The kernels of the installed SGLang.

    Raises:
        EnvironmentFault: no GPU, no such kernels, or an interpreter where a compiled kernel was asked for.
    """
    if session.interpreted:
        os.environ[_INTERPRET] = "1"
    elif os.environ.get(_INTERPRET, "0") not in ("", "0"):
        raise EnvironmentFault(f"{_INTERPRET} is set, so no kernel would reach the GPU", f"unset {_INTERPRET}")
    if "triton" in sys.modules:
        raise EnvironmentFault("triton was imported before its mode was set", "open the subject in a fresh process")
    device = "cpu" if session.interpreted else "cuda"
    facts = versions(_PACKAGES) | device_facts(device) | stand_ins
    kernels = _first_importable(_MODULES)
    mode = type(kernels._fwd_grouped_kernel_stage1).__name__
    if session.interpreted != (mode == "InterpretedFunction"):
        raise EnvironmentFault(f"Triton made a {mode} of the kernel", f"check {_INTERPRET} and the version of triton")
    facts |= {
        "kernels": kernels.__name__,
        "triton_mode": mode,
        "dtype": session.dtype,
        "peer": "torch, same dtype and device",
    }
    facts |= {f"environment.{name}": value for name, value in session.environment.items()}
    return TritonAttention(session, kernels, device, facts)


def _first_importable(names: tuple[str, ...]) -> ModuleType:
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise EnvironmentFault(
        "this SGLang has no Triton decode attention at a known place", "use the image of the profile"
    )
