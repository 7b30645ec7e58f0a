"""A router whose choice no rounding can change.

Random routers sit on ties, so a tiny mixture of experts would give one dtype other experts than another, and no limit
could tell that from a fault. Here every token id carries a code in the residual stream, one coordinate per expert:

- The embedding holds the code. The experts of a token's pair have 2 … 3 there, all others −1 … 0.
- Nothing writes to these coordinates later: the rows of o_proj, of the experts' down_proj, of their biases and of every
  adapter's B that would are 0, so the code reaches every router exactly.
- The norm before the router has weight 1 there, and row e of the router reads one code coordinate with gain 4, another
  one in each layer. So a chosen expert's logit is ahead of any other by at least 4 · 2 / rms(x).
- All else that the router reads is small: with |W_e − W_f|₂ ≤ 0.05 off the code, norm weights up to 1.35 and
  |x|₂ / rms(x) = √256, Cauchy–Schwarz bounds it by 1.1, and two biases differ by at most 0.35.

With rms(x) ≤ 4 the lead is at least 0.5 whatever the text and the adapter, and bfloat16 errs by 0.03 there; the least lead
of 16 640 choices is 3.8. Within a pair logits differ by up to 4 / rms(x), and follow x through its norm, the biases and the small part.
"""

import numpy as np
import numpy.typing as npt

from kit.synthetic.catalogue import ExpertShape, ModelShape
from kit.synthetic.draws import below
from kit.synthetic.stream import Weights, bell

_GAIN = 4.0
_BIAS_STD = 0.05
_REST_STD = 0.0015
_STEPS = 64  # of one unit of the code: 3 is 192 steps, exact in bfloat16


def code_places(model: ModelShape) -> npt.NDArray[np.intp]:
    """The coordinates of the residual stream that hold the code, spread evenly; empty without experts."""
    count = model.experts.count if model.experts else 0
    return np.arange(count, dtype=np.intp) * (model.hidden // max(count, 1))


def codes(model: ModelShape, experts: ExpertShape) -> Weights:
    """[vocabulary, experts]: what each token id writes into the code coordinates."""
    shape = (model.vocabulary, experts.count)
    level = np.array(below(f"{model.name}/code", model.vocabulary * experts.count, _STEPS)).reshape(shape)
    order = np.argsort(
        np.array(below(f"{model.name}/pair", model.vocabulary * experts.count, 2**32)).reshape(shape), kind="stable"
    )
    chosen = np.zeros(shape, dtype=bool)
    np.put_along_axis(chosen, order[:, : experts.per_token], True, axis=1)
    return (np.where(chosen, 2 * _STEPS + level, -level) / _STEPS).astype(np.float32)


def router_weights(model: ModelShape, experts: ExpertShape, layer: int) -> dict[str, Weights]:
    """``weight`` [experts, hidden] and ``bias`` [experts] of a layer's router."""
    label = f"{model.name}/model.layers.{layer}.mlp.router"
    weight = bell(f"{label}.weight", experts.count * model.hidden, _REST_STD).reshape(experts.count, model.hidden)
    places = code_places(model)
    weight[:, places] = 0.0
    weight[np.arange(experts.count), np.roll(places, layer)] = _GAIN
    return {"weight": weight, "bias": bell(f"{label}.bias", experts.count, _BIAS_STD)}
