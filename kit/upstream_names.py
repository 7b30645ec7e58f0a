"""Names of the measurements that upstream's rules are about (`kit.checks.upstream_rules`, `kit.selftest.upstream`)."""

from typing import Final

HALF_SQUARE: Final = "upstream_half_square"
"""Mean ½Δ² of one prompt to the oracle, nat²."""
PREFILL: Final = "upstream_prefill_top"
DECODE: Final = "upstream_decode_top"
"""Largest |Δ| of the five largest logprobs, largest with largest whatever tokens they belong to, nat."""
ROUGE_L: Final = "upstream_rouge_l"
"""Least ROUGE-L of a greedy text to the reference's."""
COSINE: Final = "cosine_to_peer"
MAX_ABS: Final = "max_abs_to_peer"
"""A kernel's answer beside a plain one of the same dtype."""
