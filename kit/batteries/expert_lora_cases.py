"""Cases of LoRA on a mixture of experts: ranks from 0 to the largest, requests of 0, 1 and many rows, experts without any."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final, Literal, NamedTuple

from kit.attention_spec import Dtype
from kit.batteries.lora_kernel_cases import MAX_RANK, RANKS
from kit.lora_kernel_spec import ExpertLora
from kit.plan import KernelLibrary

Routing = Literal["by-adapter", "virtual-experts"]
SPARSITY: Final = 8
"""SGLang sorts tokens in Python where rows · chosen · 8 ≤ experts · adapters (``_SPARSITY_FACTOR``), else in a CUDA kernel."""


class Batch(NamedTuple):
    """Ranks of the adapters, the adapter of each request, and its rows; experts, and how many of them have tokens."""

    adapters: tuple[int, ...]
    rows: tuple[int, ...]
    experts: int
    visited: int
    ranks: tuple[int, ...] = RANKS
    chosen: int = 2
    decode: bool = False


BATCHES = {
    "mixed": Batch((0, 1, 2, 3, 4, 5, 0), (2, 1, 1, 1, 0, 1, 0), 16, 5),
    "none": Batch((1, 1), (2, 1), 16, 4),
    "many": Batch((0, 1, 2, 3, 4, 5, 0), (5, 1, 17, 1, 0, 33, 16), 16, 11),
    "decode": Batch((2, 0, 1, 0, 5, 2, 3), (1,) * 7, 8, 8, chosen=4, decode=True),
    "one": Batch((2,), (130,), 32, 3),
}
"""The first two are what SGLang sorts in Python, so that no kernel but Triton's is needed."""
_OUTPUTS: dict[Literal["gate-up", "down"], int] = {"gate-up": 40, "down": 72}
_INPUTS = {"small": 80, "large": 1056}
_ROUTINGS: tuple[Routing, ...] = ("by-adapter", "virtual-experts")
_MORE = ("mixed", "decode", "one")


class Asked(NamedTuple):
    """How a batch is asked: size of x, how SGLang sorts tokens, and whether outer weights are shared."""

    batch: str
    routing: Routing
    size: str
    shared: bool


ASKED = (
    *(Asked("many", routing, size, shared) for routing, size, shared in product(_ROUTINGS, _INPUTS, (False, True))),
    *(Asked(batch, routing, "small", shared) for batch, routing, shared in product(_MORE, _ROUTINGS, (False, True))),
    *(Asked("none", routing, "small", False) for routing in _ROUTINGS),
)
INTERPRETED: dict[KernelLibrary, tuple[Asked, ...]] = {
    "lora-triton": (
        Asked("mixed", "by-adapter", "small", False),
        Asked("mixed", "virtual-experts", "small", False),
        Asked("none", "by-adapter", "small", False),
    ),
    "lora-csgmv": (Asked("mixed", "by-adapter", "small", True),),
}
"""An interpreter takes seconds for one. Backends differ in how they prepare the batch, and not in kernels; virtual experts are asked
once, to say why they cannot be."""


def cases(asked: Iterable[Asked], dtype: Dtype) -> Iterator[tuple[str, str, ExpertLora]]:
    """Place, aspect and spec."""
    for (place, outputs), each in product(_OUTPUTS.items(), asked):
        spec = {
            "place": place,
            "routing": each.routing,
            "shared_outer": each.shared,
            "inputs": _INPUTS[each.size],
            "outputs": outputs,
            "max_rank": MAX_RANK,
            "dtype": dtype,
            **BATCHES[each.batch]._asdict(),
        }
        parts = (each.batch, each.routing, "large" if each.size == "large" else "", "shared" if each.shared else "")
        yield place, "-".join(filter(None, parts)), ExpertLora.model_validate(spec)


def refuses(spec: ExpertLora) -> str | None:
    """Why Triton's interpreter cannot run a case."""
    if spec.routing == "virtual-experts":
        return "SGLang sorts tokens by virtual expert in a compiled kernel of sgl_kernel, which needs a GPU"
    return None
