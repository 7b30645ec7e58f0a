import numpy as np
import pytest

from kit.batteries.lora_kernel_cases import BATCHES, MAX_RANK, cases
from kit.lora_kernel_spec import LoraKernel, LoraOp
from kit.oracles import lora_kernels
from kit.oracles.twice import OracleDisagreement
from kit.synthetic.lora_kernels import lora_inputs

SMALL = {
    "inputs": 7,
    "max_rank": 4,
    "ranks": (2, 0, 4),
    "scalings": (1.625, 1.0, 0.6875),
    "adapters": (0, 2, 1, 0),
    "rows": (2, 1, 3, 0),
}


def spec(op: LoraOp, outputs: tuple[int, ...]) -> LoraKernel:
    return LoraKernel(op=op, outputs=outputs, **SMALL)


def test_the_oracle_gives_the_known_answer() -> None:
    lora_kernels.check_known.__wrapped__()


def test_an_oracle_without_scaling_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = lora_kernels.lora
    monkeypatch.setattr(
        lora_kernels, "lora", lambda s, inputs: honest(s.model_copy(update={"scalings": (1.0,) * len(s.ranks)}), inputs)
    )
    with pytest.raises(OracleDisagreement, match="known answer"):
        lora_kernels.check_known.__wrapped__()


def test_slices_are_packed_by_the_adapters_own_rank() -> None:
    """By the definition, one request at a time."""
    asked = spec("qkv", (3, 2, 2))
    inputs = lora_inputs(asked)
    out = lora_kernels.lora(asked, inputs)
    for row, adapter in enumerate(inputs.owner):
        rank = asked.ranks[adapter]
        expected = inputs.base[row].astype(float)
        for place, (start, end) in enumerate(((0, 3), (3, 5), (5, 7))):
            a = inputs.a[adapter, place * rank : (place + 1) * rank].astype(float)
            b = inputs.b[adapter, start:end, :rank].astype(float)
            expected[start:end] += asked.scalings[adapter] * b @ (a @ inputs.x[row].astype(float))
        np.testing.assert_allclose(out[row], expected, rtol=0, atol=1e-12)


def test_rows_without_an_adapter_keep_their_base() -> None:
    inputs = lora_inputs(spec("expand", (5,)))
    out = lora_kernels.lora(spec("expand", (5,)), inputs)
    np.testing.assert_array_equal(out[inputs.owner == 1], inputs.base[inputs.owner == 1])


def test_what_must_not_be_read_is_nan() -> None:
    inputs = lora_inputs(spec("qkv", (3, 2, 2)))
    assert np.all(np.isnan(inputs.a[0, 6:])) and np.all(np.isfinite(inputs.a[0, :6]))
    assert np.all(np.isnan(inputs.b[0, :, 2:])) and np.all(np.isfinite(inputs.b[0, :, :2]))
    assert np.all(np.isnan(inputs.a[1]))


def test_batches_mix_what_upstream_does_not() -> None:
    ranks = {rank for batch in BATCHES.values() for rank in batch.ranks}
    assert {0, 1, MAX_RANK} <= ranks and any(rank & (rank - 1) for rank in ranks)
    used = {BATCHES["mixed"].scalings[adapter] for adapter in (0, 2, 3, 4, 5)}
    assert not any(np.log2(scaling).is_integer() for scaling in used)
    assert {0, 1} <= set(BATCHES["mixed"].rows)
    assert {op for op, _, _ in cases(True, "float16")} == {"shrink", "expand", "qkv", "gate-up", "embedding"}
