import numpy as np
import pytest

from kit.batteries.expert_lora_cases import ASKED, SPARSITY, cases, refuses
from kit.batteries.expert_lora_cases import INTERPRETED as OF_INTERPRETER
from kit.batteries.lora_kernel_cases import MAX_RANK
from kit.lora_kernel_spec import ExpertLora
from kit.oracles import expert_lora
from kit.oracles.twice import OracleDisagreement
from kit.synthetic.expert_lora import expert_lora_inputs

WHOLE = [spec for _, _, spec in cases(ASKED, "float16")]
INTERPRETED = [spec for asked in OF_INTERPRETER.values() for _, _, spec in cases(asked, "float16")]


def small(place: str, shared: bool, **changes: object) -> ExpertLora:
    return ExpertLora.model_validate(
        {
            "place": place,
            "shared_outer": shared,
            "experts": 5,
            "visited": 3,
            "chosen": 2,
            "inputs": 7,
            "outputs": 3,
            "max_rank": 4,
            "ranks": (2, 0, 4),
            "adapters": (0, 2, 1, 0),
            "rows": (2, 1, 3, 0),
            **changes,
        }
    )


def test_the_oracle_gives_the_known_answer() -> None:
    expert_lora.check_known.__wrapped__()


def test_an_oracle_without_the_routers_weights_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = expert_lora.expert_lora
    monkeypatch.setattr(
        expert_lora, "expert_lora", lambda spec, inputs: honest(spec.model_copy(update={"place": "gate-up"}), inputs)
    )
    with pytest.raises((OracleDisagreement, ValueError)):
        expert_lora.check_known.__wrapped__()


@pytest.mark.parametrize("place", ["gate-up", "down"])
@pytest.mark.parametrize("shared", [False, True])
def test_every_visit_by_the_definition(place: str, shared: bool) -> None:
    spec = small(place, shared)
    inputs = expert_lora_inputs(spec)
    out = expert_lora.expert_lora(spec, inputs)
    for row, place_ in np.ndindex(*inputs.visits.shape):
        adapter, expert = inputs.owner[row], inputs.visits[row, place_]
        rank, expected = spec.ranks[adapter], inputs.base[row, place_].astype(float)
        x = inputs.x[2 * row + place_ if place == "down" else row].astype(float)
        for part in range(spec.slices if rank else 0):
            a = inputs.a[adapter, 0 if shared and place == "gate-up" else expert, part * 4 : part * 4 + rank]
            b = inputs.b[adapter, 0 if shared and place == "down" else expert, part * 3 : (part + 1) * 3, :rank]
            share = inputs.shares[row, place_] if place == "down" else 1.0
            expected[part * 3 : (part + 1) * 3] += share * (b.astype(float) @ (a.astype(float) @ x))
        np.testing.assert_allclose(out[row, place_], expected, rtol=0, atol=1e-12)


def test_what_must_not_be_read_is_nan_and_what_sglang_clears_is_0() -> None:
    spec = small("gate-up", False)
    inputs = expert_lora_inputs(spec)
    visited = set(inputs.visits[inputs.owner == 0].ravel().tolist())
    for expert in range(spec.experts):
        held = inputs.a[0, expert].reshape(2, 4, 7)
        assert np.all(np.isfinite(held)) == (expert in visited)
        if expert in visited:
            assert not held[:, 2:].any() and held[:, :2].any() and not inputs.b[0, expert][:, 2:].any()
    assert np.all(np.isnan(inputs.a[1])), "no adapter: its weights are not read"
    cleared = expert_lora_inputs(small("gate-up", False, routing="virtual-experts"))
    assert not np.nan_to_num(cleared.a[1]).any() and np.isfinite(cleared.a[1]).any()


def test_a_row_visits_no_expert_twice() -> None:
    for spec in (spec for spec in WHOLE if spec.inputs < 100 and not spec.shared_outer):
        visits = np.sort(expert_lora_inputs(spec).visits, axis=1)
        assert np.all(np.diff(visits, axis=1) > 0) and visits.max() < spec.visited


def test_batches_hold_what_the_issue_asks() -> None:
    assert {0, 1, MAX_RANK} <= {rank for spec in WHOLE for rank in spec.ranks}
    assert {0, 1} <= {rows for spec in WHOLE for rows in spec.rows}
    assert any(spec.visited < spec.experts for spec in WHOLE)
    for spec in (*WHOLE, *INTERPRETED):
        asked = {spec.ranks[adapter] for adapter, rows in zip(spec.adapters, spec.rows, strict=True) if rows}
        assert asked == {0} or MAX_RANK in asked
    for place in ("gate-up", "down"):
        found = {(spec.routing, spec.shared_outer) for spec in WHOLE if spec.place == place}
        assert len(found) == 4


def test_an_interpreter_is_asked_what_python_sorts() -> None:
    """SGLang sorts larger batches in a CUDA kernel; both ways are asked on a GPU."""

    def in_python(spec: ExpertLora) -> bool:
        return sum(spec.rows) * spec.chosen * SPARSITY <= spec.experts * len(spec.ranks)

    assert all(in_python(spec) for spec in INTERPRETED if refuses(spec) is None)
    assert len({in_python(spec) for spec in WHOLE}) == 2
    assert {refuses(spec) is None for spec in INTERPRETED} == {True, False}
