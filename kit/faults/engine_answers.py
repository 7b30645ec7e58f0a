"""Faults of the keys of SGLang's radix cache, of positions, and of logits."""

from collections.abc import Callable
from typing import Any, Final

from kit.faults.engine_active import ActiveFaults

Original = Callable[..., Any]

LATE_POSITION: Final = 128
"""From this position on, ``positions-late-off-by-one`` counts one too many."""


class AnswerFaults:
    """Hooks; without an active fault each does what the original does."""

    def __init__(self, active: ActiveFaults) -> None:
        self._active = active

    def request(self, original: Original, request: Any, *args: Any, **kwargs: Any) -> None:
        """Around ``Req.__init__``, which makes the adapter a part of the key of its cache."""
        original(request, *args, **kwargs)
        faults, adapter = self._active.strengths, kwargs.get("lora_id")
        if adapter is None:
            return
        if "cache-key-without-adapter" in faults:
            request.extra_key = kwargs.get("extra_key")
        if "cache-key-adapter-or-not" in faults:
            request.extra_key = (kwargs.get("extra_key") or "") + "an adapter"

    def positions(self, original: Original, kind: Any, *args: Any, **kwargs: Any) -> Any:
        """Around ``ForwardBatch.init_new``."""
        forward = original(kind, *args, **kwargs)
        faults, places = self._active.strengths, forward.positions
        if places is None:
            return forward
        if "positions-late-off-by-one" in faults:
            forward.positions = places + (places >= LATE_POSITION).to(places.dtype)
        if "decode-positions-off-by-one" in faults and not forward.forward_mode.is_extend():
            forward.positions = places + 1
        if "chunk-positions-restart" in faults and forward.forward_mode.is_extend():
            starts = forward.extend_prefix_lens.repeat_interleave(forward.extend_seq_lens.long())
            forward.positions = places - starts.to(places.dtype)
        return forward

    def logits(self, original: Original, processor: Any, *args: Any, **kwargs: Any) -> Any:
        """Around ``LogitsProcessor._get_logits``, [rows, vocabulary]."""
        logits = original(processor, *args, **kwargs)
        faults = self._active.strengths
        if "logits-temperature" in faults:
            logits = logits * faults["logits-temperature"]
        if "logits-of-next-row" in faults:
            logits = logits.roll(-1, dims=0)
        if "logits-bfloat16" in faults:
            logits = logits.bfloat16().to(logits.dtype)
        if "logits-capped" in faults:
            cap = faults["logits-capped"]
            logits = cap * (logits / cap).tanh()
        if "logits-one-token" in faults:
            logits = logits.clone()
            logits[:, 0] += faults["logits-one-token"]
        return logits
