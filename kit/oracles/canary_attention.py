"""Known answers of attention, worked by hand, that the oracle must give on this machine before it is used."""

from functools import cache

import numpy as np

from kit.oracles import attention
from kit.oracles.attention import Scoring
from kit.oracles.canary import compare
from kit.synthetic.attention import Mask, Request

_LN3 = float(np.log(3.0))
_ALL = np.ones((1, 2), np.bool_)
_LAST = np.array([1])


def _two_tokens(query: list[list[float]], visible: Mask = _ALL) -> Request:
    """Keys 2 ln 3 and 0, values (8, −4) and (0, 4), one KV head of size 1; queries [row][head]."""
    keys = np.array([[[2.0 * _LN3]], [[0.0]]])
    values = np.array([[[8.0, -4.0]], [[0.0, 4.0]]])
    return Request(np.array(query)[:, :, None], keys, values, visible, np.arange(2 - len(query), 2))


@cache
def check() -> None:
    """Hold the attention oracle against answers worked by hand, once per process. Scale ½ throughout.

    - Plain: for query 1 the scores are ln 3 and 0, the weights ¾ and ¼: (6, −2). For query −1 they are ¼ and ¾: (2, 2).
    - Causal: two queries of 1. The first sees the first key alone: (8, −4). The second sees both: (6, −2).
    - A mask, or a window, that hides the first key: (0, 4).
    - Sink 0: for query 1 the weights are as 3, 1 and the sink's 1, so ⅗ and ⅕: (24/5, −8/5).
    - Cap 2 ln 3: for query ln 3 the score is (ln 3)². Divided by the cap it is ½ ln 3 = artanh ½, so the capped score is
      half the cap, ln 3: (6, −2).
    - Temperature length 2: at position 4 the scores of query ½ count log 4 / log 2 = 2 times: (6, −2).

    Raises:
        OracleDisagreement: an answer differs.
    """
    half = Scoring(0.5)
    compare("plain attention", attention.attend([_two_tokens([[1.0, -1.0]])], half).ravel(), (6.0, -2.0, 2.0, 2.0))
    causal = np.tril(np.ones((2, 2), np.bool_))
    found = attention.attend([_two_tokens([[1.0], [1.0]], causal)], half)
    compare("causal attention", found.ravel(), (8.0, -4.0, 6.0, -2.0))
    hidden = _two_tokens([[1.0]], np.array([[False, True]]))
    compare("masked attention", attention.attend([hidden], half).ravel(), (0.0, 4.0))
    sink = Scoring(0.5, sinks=np.zeros(1, np.float32))
    compare("attention with a sink", attention.attend([_two_tokens([[1.0]])], sink).ravel(), (4.8, -1.6))
    capped = attention.attend([_two_tokens([[_LN3]])], Scoring(0.5, logit_cap=2.0 * _LN3))
    compare("attention with a cap", capped.ravel(), (6.0, -2.0))
    warm = _two_tokens([[0.5]])._replace(positions=np.array([4]))
    found = attention.attend([warm], Scoring(0.5, temperature_length=2))
    compare("attention with a temperature", found.ravel(), (6.0, -2.0))
