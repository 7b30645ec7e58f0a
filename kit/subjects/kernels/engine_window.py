"""The slots of a sliding window in decode, chosen by SGLang's own ``update_sliding_window_buffer`` (``triton_backend.py``)."""

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from kit.attention_spec import GroupedDecode
from kit.subjects.kernels.tensors import Placing
from kit.synthetic.attention import AttentionInputs, Slots


def engine_window(spec: GroupedDecode, inputs: AttentionInputs, placing: Placing) -> list[Slots]:
    """Per request the slots that decode gets. SGLang's window is that of the model less one, as `Attention.window` is."""
    from sglang.srt.layers.attention.triton_backend import update_sliding_window_buffer

    batch = len(spec.lengths)
    table = torch.zeros(batch, max(spec.lengths), dtype=torch.int32, device=placing.device)
    for row, slots in enumerate(inputs.pages):
        table[row, : len(slots)] = placing.integers(slots)
    indptr = torch.zeros(batch + 1, dtype=torch.int32, device=placing.device)
    rows = torch.arange(batch, dtype=torch.int64, device=placing.device)
    arguments: dict[str, Any] = {
        "window_kv_indptr": indptr,
        "sliding_window_size": spec.window,
        "seq_lens": placing.integers(spec.lengths, torch.int64),
        "bs": batch,
        "device": placing.device,
    }
    if "index_table" in inspect.signature(update_sliding_window_buffer).parameters:  # since SGLang 0.5.19
        arguments["index_table"] = SimpleNamespace(
            sliding_window_read_ids=lambda: table, row_ids=rows, entry_page_size=1, is_translated=False
        )
    else:
        arguments |= {"req_to_token": table, "req_pool_indices": rows}
    found = update_sliding_window_buffer(**arguments)
    ends, chosen = found[0].cpu().numpy(), found[1].cpu().numpy()
    return np.split(chosen[: ends[-1]].astype(np.int64), ends[1:-1])
