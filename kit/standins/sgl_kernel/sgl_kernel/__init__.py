"""Stand-in for sgl_kernel, of which no CPU build is published.

It registers no operator, so SGLang sees no AMX support and takes its plain torch paths. What SGLang imports by name
exists and raises when called, except the one function that the CPU memory pool calls.
"""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

__version__ = "0.0.0+kit.standin"


class Unsupported(RuntimeError):
    """A function of sgl_kernel that this stand-in does not provide."""

    def __init__(self, name: str) -> None:
        super().__init__(f"sgl_kernel is kit's stand-in, without '{name}': install the real sgl_kernel for this path")


def copy_all_layer_kv_cache_cpu(keys: Iterable[Any], values: Iterable[Any], target: Any, source: Any) -> None:
    """Copy cache slots `source` to slots `target` in the buffers of every layer, each [slots, heads, size]."""
    for buffer in (*keys, *values):
        buffer[target] = buffer[source]


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def unsupported(*args: object, **kwargs: object) -> NoReturn:
        raise Unsupported(name)

    return unsupported
