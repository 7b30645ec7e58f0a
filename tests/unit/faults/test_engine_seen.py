"""Which cases of several identities must see a fault inside the engine: it follows from what they ask, and from nothing else."""

import pytest

from kit.batteries.multi_lora import cases
from kit.check_spec import AdapterLife, CachedIdentities, CheckSpec, FirstRequests, MixedBatch, MixedBatches
from kit.faults.asked import asked
from kit.faults.engine_seen import engine_must_see
from kit.plan import Case
from kit.profile import find_profile
from kit.synthetic.program_names import ONE_SLOT, RELOAD

A, B, C, D = "adapter-0", "adapter-1", "query-value", "mlp"
OF_ISSUE = (
    "batch-slot-zero",
    "batch-rows-permuted",
    "batch-adapters-of-previous",
    "load-slot-not-rewritten",
    "load-scaled-twice",
    "load-scaled-again-by-name",
    "load-missing-not-zeroed",
    "cache-key-without-adapter",
    "batch-third-adapter-skipped",
    "batch-base-adapted",
)


def case(spec: CheckSpec) -> Case:
    return Case(id="multi-lora/tiny-qwen3/x", session="s", spec=spec)


def batch(*rows: str | None, tokens: int = 10, new: int = 1) -> MixedBatch:
    return MixedBatch(composition=rows, prompt_lengths=(tokens,) * len(rows), new_tokens=(new,) * len(rows))


def mixed(*batches: MixedBatch, slots: int | None = None) -> Case:
    return case(MixedBatches(batches=batches, slots=slots, seed=1))


def life(program: str, *adapters: str, slots: int = 3) -> Case:
    return case(AdapterLife(program=program, adapters=adapters, slots=slots))


@pytest.mark.parametrize(
    ("fault", "must", "need_not"),
    [
        ("batch-slot-zero", mixed(batch(A, B, tokens=33)), mixed(batch(A, B, tokens=32))),
        ("batch-slot-zero", mixed(batch(A, B, tokens=33)), mixed(batch(A, A, tokens=100))),
        ("batch-slot-zero", mixed(batch(A, B, C, tokens=90), slots=3), mixed(batch(A, B, C, D, tokens=90), slots=3)),
        ("batch-first-row-for-all", mixed(batch(A, None, tokens=33)), mixed(batch(A, A, tokens=300))),
        ("batch-rows-permuted", mixed(batch(A, None)), mixed(batch(A, A), batch(None, None))),
        ("batch-rows-permuted", mixed(batch(A, B)), mixed(batch(A, B, tokens=257))),
        ("batch-last-two-exchanged", mixed(batch(A, A, B)), mixed(batch(A, B, B))),
        ("batch-adapters-of-previous", mixed(batch(A, B), batch(A, A)), mixed(batch(A, B), batch(A, B, A))),
        ("batch-adapters-of-previous", mixed(batch(A), batch(B), slots=2), mixed(batch(A), batch(B), slots=1)),
        ("batch-third-adapter-skipped", mixed(batch(A, B, C)), mixed(batch(A, B, None, A))),
        ("batch-third-adapter-skipped", mixed(batch(A, B, C), slots=3), mixed(batch(A, B, C, None), slots=3)),
        ("batch-base-adapted", mixed(batch(None, A)), mixed(batch(None, None), batch(A, B))),
        ("batch-smallest-rank", mixed(batch(A, B)), mixed(batch(A, C))),
        ("batch-scaling-of-first", mixed(batch(A, B)), mixed(batch(A, None, A))),
        ("batch-rows-beyond-eight", mixed(batch(*[A] * 9)), mixed(batch(*[A] * 8, None))),
        ("decode-without-adapter", mixed(batch(A, new=2)), mixed(batch(A), batch(None, new=2))),
        ("decode-first-row-for-all", mixed(batch(A, B, new=2)), mixed(batch(A, A, new=2), batch(A, B))),
        ("load-slot-not-rewritten", mixed(batch(A, B), batch(C, D), slots=3), mixed(batch(A, B), batch(C, D))),
        ("load-slot-not-rewritten", mixed(batch(A, B), batch(C, D), slots=3), mixed(batch(A, B, C, None), slots=3)),
        ("load-slot-not-rewritten", life("refused-no-folder", A, B), life("last-positions", A, B)),
        ("load-last-layer-lost", mixed(batch(A), batch(B), slots=1), mixed(batch(A), batch("head"), slots=1)),
        ("load-scaled-twice", mixed(*[batch(A, B, C, D)] * 2, slots=3), mixed(batch(A, B, C, D), batch(A), slots=3)),
        ("load-scaled-twice", mixed(*[batch(A, B)] * 2, slots=1), mixed(*[batch(A, "embedding")] * 2, slots=1)),
        ("evict-believed-resident", mixed(*[batch(A, B)] * 2, slots=1), mixed(*[batch(A, B)] * 2, slots=2)),
        ("load-missing-not-zeroed", life(ONE_SLOT, A, C), life(ONE_SLOT, "rank-4", "rank-64")),
        ("load-missing-not-zeroed", life(ONE_SLOT, A, C), life(RELOAD, A, C)),
        ("load-scaled-again-by-name", life(RELOAD, A, C), life(ONE_SLOT, A, C)),
        ("load-weights-by-name", life(RELOAD, A, C), life("refused-no-folder", A, C)),
        ("load-scaling-by-name", life(RELOAD, A, C), life(ONE_SLOT, A, C)),
    ],
)
def test_a_case_must_see_what_its_batches_cannot_hide(fault: str, must: Case, need_not: Case) -> None:
    assert engine_must_see(fault, must)
    assert not engine_must_see(fault, need_not)


@pytest.mark.parametrize(("carried", "must"), [("nothing", True), ("extra-key", True), ("conversation", False)])
def test_one_prompt_under_several_identities_must_see_a_cache_without_them(carried: str, must: bool) -> None:
    spec = CachedIdentities(adapters=(A, B), carried=carried, prompt_length=20, seed=1)  # type: ignore[arg-type]
    assert engine_must_see("cache-key-without-adapter", case(spec)) is must


def test_what_is_asked_after_loads_does_not_follow_on_what_was_asked_before_them() -> None:
    batches = asked(AdapterLife(program=RELOAD, adapters=(A, C), slots=3))
    assert [row.content for b in batches for row in b.rows][:4] == [f"{A}@1", f"{A}@2", None, f"{A}@2"]
    assert [b.follows for b in batches][:3] == [False, False, True]
    assert [row.loads for row in batches[1].rows] == [2]


def test_pinned_adapters_leave_fewer_slots() -> None:
    first, second, *rest = asked(AdapterLife(program=ONE_SLOT, adapters=(A, B, C), slots=3))
    assert (first.free, second.free, {b.free for b in rest}) == (2, 1, {1})
    assert second.pinned == {"pinned-0", "pinned-1"}


def test_first_requests_come_back_after_an_eviction() -> None:
    spec = FirstRequests(adapters=(A, B, C, D, "rank-4"), slots=3, seed=1)
    assert engine_must_see("load-scaled-twice", case(spec)) and engine_must_see("load-weights-by-name", case(spec))


@pytest.mark.parametrize("profile", ["cpu", "h200", "mi355x"])
def test_every_fault_of_the_issue_must_be_seen_by_a_case_of_this_battery(profile: str) -> None:
    planned = [p.case for p in cases(find_profile(profile)) if p.case.skip is None]
    assert {fault for fault in OF_ISSUE if any(engine_must_see(fault, case) for case in planned)} == set(OF_ISSUE)
