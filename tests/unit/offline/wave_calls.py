"""One call of each Wave kernel, small enough to execute in a second."""

from kit.attention_spec import Extend, Prefill
from kit.batteries.upstream_attention import MULTI_QUERY, decode
from kit.offline_spec import ExecuteMlir

_SIZES = {"query_heads": 16, "kv_heads": 1, "head_dim": 64, "value_dim": 64, "dtype": "float16"}
CALLS = {
    name: ExecuteMlir(architecture="gfx950", attention=attention)
    for name, attention in {
        "decode-100": decode(MULTI_QUERY, 100, "float16")[1],
        "decode-5": decode(MULTI_QUERY, 5, "float16")[1],
        "extend": Extend(prefixes=(70, 0), lengths=(33, 17), **_SIZES),
        "prefill": Prefill(lengths=(50, 77), causal=False, **_SIZES),
    }.items()
}
