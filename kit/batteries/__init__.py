"""What is promised: one module per battery, each yields its cases as data."""

from collections.abc import Callable, Iterator
from itertools import chain

from kit.batteries import kernels, links, lora_logprob, lora_models, multi_lora, offline, text_models
from kit.batteries.planned import Planned
from kit.profile import BatteryName, Profile

__all__ = ["BATTERIES", "FURTHER", "Planned"]

BATTERIES: dict[BatteryName, Callable[[Profile], Iterator[Planned]]] = {
    "lora-logprob": lambda profile: chain(lora_logprob.cases(profile), lora_models.cases(profile)),
    "multi-lora": lambda profile: chain(multi_lora.cases(profile), text_models.cases(profile)),
    "kernels": lambda profile: chain(links.cases(profile), kernels.cases(profile), offline.cases(profile)),
}

FURTHER: dict[BatteryName, Callable[[Profile], Iterator[Planned]]] = {
    "lora-logprob": lora_models.further_cases,
    "multi-lora": text_models.further_cases,
}
"""Cases that belong to no profile: planned only where a case is asked for by its battery and subject, without a star in them."""
