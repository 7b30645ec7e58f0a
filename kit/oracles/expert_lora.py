"""The oracle for LoRA on a mixture of experts: float64, numpy only.

y = base + B A x for gate and up, and base + w · B A x after the second projection, where w is the router's weight: LoRA (Hu et al.,
arXiv 2106.09685, section 4.1) on each expert's linear layers, whose outputs a mixture adds with these weights (Shazeer et al.,
arXiv 1701.06538, equation 1).
"""

from functools import cache, partial

import numpy as np

from kit.lora_kernel_spec import ExpertLora
from kit.oracles.canary import compare
from kit.oracles.twice import Array, Summation, agreed
from kit.synthetic.expert_lora import ExpertLoraInputs


def expert_lora(spec: ExpertLora, inputs: ExpertLoraInputs) -> Array:
    """What the call must give, [rows, chosen, slices · outputs].

    Raises:
        OracleDisagreement: two computations differ.
    """
    return agreed(f"LoRA on experts, {spec.place}", partial(_expert_lora, spec, inputs))


def _expert_lora(spec: ExpertLora, inputs: ExpertLoraInputs, sums: Summation) -> Array:
    out = inputs.base.astype(np.float64)
    for row, adapter in enumerate(inputs.owner.tolist()):
        rank = spec.ranks[adapter]
        if rank == 0:
            continue
        for place, expert in enumerate(inputs.visits[row].tolist()):
            x = inputs.x[row * spec.chosen + place if spec.place == "down" else row].astype(np.float64)[:, None]
            share = float(inputs.shares[row, place]) if spec.place == "down" else 1.0
            a = inputs.down(adapter, expert).astype(np.float64).reshape(spec.slices, spec.max_rank, -1)
            b = inputs.up(adapter, expert).astype(np.float64).reshape(spec.slices, spec.outputs, -1)
            delta = [sums.contract(b[i, :, :rank], sums.contract(a[i, :rank], x))[:, 0] for i in range(spec.slices)]
            out[row, place] += share * np.concatenate(delta)
    return out


@cache
def check_known() -> None:
    """An answer worked by hand, once per process.

    Two experts, of which the row visits the second and then the first, with shares 3/4 and 1/4; rank 1, one output. The two x are
    (1, 2) and (3, 0). A of the experts is (1, 1) and (2, −1), B is 4 and 5, the base is 1 and 1. The second expert gives
    5 · (2 − 2) = 0, the first 4 · 3 = 12; so the row is 1 + 3/4 · 0 and 1 + 1/4 · 12: (1, 4).

    Raises:
        OracleDisagreement: the oracle gives another one.
    """
    spec = ExpertLora(
        place="down",
        experts=2,
        visited=2,
        chosen=2,
        inputs=2,
        outputs=1,
        max_rank=1,
        ranks=(1,),
        adapters=(0,),
        rows=(1,),
    )
    given = ExpertLoraInputs(
        x=np.array([[1.0, 2.0], [3.0, 0.0]], np.float32),
        a=np.array([[[[1.0, 1.0]], [[2.0, -1.0]]]], np.float32),
        b=np.array([[[[4.0]], [[5.0]]]], np.float32),
        base=np.ones((1, 2, 1), np.float32),
        visits=np.array([[1, 0]]),
        shares=np.array([[0.75, 0.25]], np.float32),
        owner=np.array([0]),
    )
    compare("LoRA on experts", expert_lora(spec, given).ravel(), (1.0, 4.0))
