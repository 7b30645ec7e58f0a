"""Faults inside SGLang's own processes, as hooks of its plugin framework. Runs there alone; see `kit.faults.engine_plugin`.

The hooked functions stand in SGLang 0.5.17 to 0.5.19.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kit.faults.engine_active import FOLDER, ActiveFaults, mark
from kit.faults.engine_answers import AnswerFaults
from kit.faults.engine_batches import BATCH_FAULTS, LoraBatch
from kit.faults.engine_loads import LoadFaults
from kit.faults.process_catalogue import SIGNALS

Hook = Callable[..., Any]


def hooks(active: ActiveFaults) -> dict[str, Hook]:
    """By dotted name of a function of SGLang, what is called around it: ``hook(original, *arguments)``."""
    loads, answers = LoadFaults(active), AnswerFaults(active)

    def prepare(original: Hook, manager: Any, forward: Any) -> None:
        for name in active.strengths.keys() & SIGNALS.keys():
            os.kill(os.getpid(), signal.Signals[SIGNALS[name]])
        loads.arrive(manager.memory_pool)
        with_faults(active, original, manager, forward)

    manager, pool = "sglang.srt.lora.lora_manager.LoRAManager", "sglang.srt.lora.mem_pool.LoRAMemoryPool"
    return {
        f"{manager}.prepare_lora_batch": prepare,
        f"{manager}.load_lora_weights": loads.weights,
        f"{pool}.load_lora_weight_to_buffer": loads.load,
        f"{pool}._clear_buffer_slot_for_base": loads.clear,
        f"{pool}.prepare_lora_batch": loads.prepare,
        "sglang.srt.managers.schedule_batch.Req.__init__": answers.request,
        "sglang.srt.model_executor.forward_batch_info.ForwardBatch.init_new": answers.positions,
        "sglang.srt.layers.logits_processor.LogitsProcessor._get_logits": answers.logits,
    }


def with_faults(active: ActiveFaults, original: Hook, manager: Any, forward: Any) -> None:
    """Call ``LoRAManager.prepare_lora_batch`` so that its backend, whichever it is, learns of an altered batch."""
    chosen = [(BATCH_FAULTS[name], strength) for name, strength in active.strengths.items() if name in BATCH_FAULTS]
    if not chosen:
        original(manager, forward)
        return
    backend = manager.lora_backend
    honest = backend.prepare_lora_batch

    def altered(**told: Any) -> Any:
        batch = _batch(forward, told, active.memory)
        for alter, strength in chosen:
            alter(batch, strength)
        return honest(**told)

    backend.prepare_lora_batch = altered
    try:
        original(manager, forward)
    finally:
        del backend.prepare_lora_batch


def _batch(forward: Any, told: dict[str, Any], memory: dict[str, Any]) -> LoraBatch:
    """What is altered in it is altered in `told`: both hold the same lists."""
    decoding = not forward.forward_mode.is_extend()
    count = len(forward.lora_ids)
    prefixes = forward.extend_prefix_lens_cpu
    return LoraBatch(
        rows=told["weight_indices"],
        ranks=told["lora_ranks"],
        scalings=told["scalings"],
        bare=[identity is None for identity in forward.lora_ids],
        begun=[False] * count if decoding or prefixes is None else [int(length) > 0 for length in prefixes],
        tokens=count if decoding else sum(int(length) for length in forward.extend_seq_lens_cpu),
        decoding=decoding,
        memory=memory,
    )


def register() -> None:
    """The plugin: hook everything, see that it is hooked, and leave word of it. SGLang calls it in each of its processes."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    folder = Path(os.environ[FOLDER])
    found = hooks(ActiveFaults(folder))
    for target, hook in found.items():
        HookRegistry.register(target, hook, HookType.AROUND)
    HookRegistry.apply_hooks()
    mark(folder, [target for target in found if target in HookRegistry._patched])
