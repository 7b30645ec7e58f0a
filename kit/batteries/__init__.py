"""What is promised: one module per battery, each yields its cases as data."""

from collections.abc import Callable, Iterator

from kit.batteries import kernels, lora_logprob, multi_lora
from kit.batteries.planned import Planned
from kit.profile import BatteryName, Profile

__all__ = ["BATTERIES", "Planned"]

BATTERIES: dict[BatteryName, Callable[[Profile], Iterator[Planned]]] = {
    "lora-logprob": lora_logprob.cases,
    "multi-lora": multi_lora.cases,
    "kernels": kernels.cases,
}
